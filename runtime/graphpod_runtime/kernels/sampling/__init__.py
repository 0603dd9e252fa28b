"""Draws the next token of every row of a batch, in torch and in Triton."""
