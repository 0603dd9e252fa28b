"""Hostile clients against our server, drawn by seed: mutated bodies, broken streams, slow senders, many connections."""
