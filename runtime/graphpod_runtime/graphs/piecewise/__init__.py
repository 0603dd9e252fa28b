"""A model's body traced once, split at attention, its pieces captured."""
