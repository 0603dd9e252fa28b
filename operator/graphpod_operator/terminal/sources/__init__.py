"""Reads the API server, pods and a Prometheus, with the rights of the user."""
