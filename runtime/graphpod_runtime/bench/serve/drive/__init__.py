"""The side that does it: HTTP, processes, clocks."""
