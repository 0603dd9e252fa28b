"""Memory that leaves a device and comes back to the same addresses."""
