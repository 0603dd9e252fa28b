"""From the logits of a pass to its tokens: what grammars allow, bias and penalties, the draw, log-probabilities."""
