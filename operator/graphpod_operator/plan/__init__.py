"""Planned: the children that a service should have, and the changes that lead there. Pure."""
