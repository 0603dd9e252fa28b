"""The paged KV cache and its page allocator."""
