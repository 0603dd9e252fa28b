"""Container images from the Dockerfile: `python3 -m testbed.images build operator runtime`."""
