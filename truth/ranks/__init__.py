"""Engines of the matrix over several ranks: how many, what they divide, and their processes."""
