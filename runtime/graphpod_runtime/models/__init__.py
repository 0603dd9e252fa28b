"""Models as plain PyTorch, and the loader of their weights."""
