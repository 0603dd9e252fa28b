"""Structured output: the fields of a request that say what its answer must be, and the check of them."""
