"""What a run of the matrix found, as JSON and as a page."""
