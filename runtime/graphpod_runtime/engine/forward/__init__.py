"""One pass, from a batch to its results: inputs, the graph that runs them, logits, tokens."""
