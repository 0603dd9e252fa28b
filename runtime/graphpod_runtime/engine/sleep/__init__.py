"""Weights and KV cache that leave the device and come back; weights that are replaced in their places."""
