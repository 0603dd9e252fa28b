"""The host's time from an admitted request to the first launch of its prompt on each rank, by part."""
