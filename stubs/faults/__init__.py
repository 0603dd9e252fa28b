"""Faults of a request: what they are, which are in force, and how an answer passes them."""
