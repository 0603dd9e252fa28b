"""What a model declares about itself: its architecture, its config.json, the type of its elements."""
