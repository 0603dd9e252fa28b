"""What a layer has behind attention: one MLP, or experts."""
