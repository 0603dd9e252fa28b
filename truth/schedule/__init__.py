"""Runs of engines over schedules: recorded, run again with the same tokens, and compared."""
