"""What a model declares about itself: its architecture, its config.json, the form of its weights."""
