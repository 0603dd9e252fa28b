"""What was seen: records of requests, and the figures that follow from them."""
