"""Observed: what the pods say of themselves, and why one does not serve."""
