"""What a service and its pods say, as checked values. Pure."""
