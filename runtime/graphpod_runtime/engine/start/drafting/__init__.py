"""What a start does for drafts: a draft model's weights, cache and graphs, and drafts that are right by a script."""
