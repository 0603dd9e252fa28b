"""The front process: HTTP, tokenizer, health. No torch."""
