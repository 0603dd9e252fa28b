"""What a scrape of the front shows: its own series, and the same under the names of vLLM."""
