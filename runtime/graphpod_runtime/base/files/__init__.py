"""Files of a model, as front and engine read them."""
