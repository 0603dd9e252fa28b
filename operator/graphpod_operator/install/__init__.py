"""Planned: what the operator's installer decides for every service. Pure."""
