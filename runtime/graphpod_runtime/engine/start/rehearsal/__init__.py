"""What a start runs once, so that no request waits for it: draws, and all that needs no weights while they are read."""
