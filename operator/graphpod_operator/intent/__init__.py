"""Planned: from a spec to what the resolver of graph policies takes, and to engine.json. Pure."""
