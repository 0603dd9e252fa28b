"""Every causal model type of the library transformers through our engine: `make families`."""
