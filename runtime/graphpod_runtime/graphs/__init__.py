"""Graph capture and replay: segments, breaks, full steps, their memory, their self-check."""
