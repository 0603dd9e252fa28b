"""A decoder's layers: their weights, their two halves, and passes that take a layer otherwise."""
