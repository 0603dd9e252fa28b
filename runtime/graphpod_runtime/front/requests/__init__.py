"""A request from its admission to its last token, and what the front knows and counts meanwhile."""
