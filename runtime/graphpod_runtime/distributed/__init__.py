"""What ranks have in common: one model in several processes, a GPU each."""
