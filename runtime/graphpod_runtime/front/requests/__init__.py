"""A request from its admission to its last token."""
