"""What FP8 brings and what it costs: weights and KV in speed on a GPU, weights in perplexity on a CPU."""
