"""Nodes, real and simulated, with what the cluster offers on them from its first minute."""
