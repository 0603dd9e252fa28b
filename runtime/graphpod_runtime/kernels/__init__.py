"""Kernels of our own, each with its twin in plain torch."""
