"""Mixtures of experts: which expert computes a token, and the products by the matrices of the chosen."""
