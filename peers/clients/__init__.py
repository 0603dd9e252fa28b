"""Clients of the HTTP API, from their packages, against our engine with real weights: `make clients`."""
