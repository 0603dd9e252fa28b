"""The engine process: its loop, and the rooms schedule, forward, capture and start."""
