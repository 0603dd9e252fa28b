"""Matrices of layers, in every form that checkpoints store them in."""
