"""What a layer's attention is made of around its scores: plain heads, or heads that share a latent."""
