"""What is supported, each cell from a run: family by path, policy and number format. `make support-matrix`."""
