"""Vectors of texts: /v1/embeddings, and what compares texts by them: /v1/score and /v1/rerank."""
