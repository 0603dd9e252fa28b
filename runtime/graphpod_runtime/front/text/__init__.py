"""Text to tokens and back: tokenizer, chat template, detokeniser. No torch."""
