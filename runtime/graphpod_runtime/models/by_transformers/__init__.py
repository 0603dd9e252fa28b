"""Any causal model of the library transformers: its modules, on our weights, attention, KV cache and graphs."""
