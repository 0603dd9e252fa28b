"""Paths by which clients of other servers ask for what this one serves elsewhere."""

OTHER_PATHS = {"/score": "/v1/score", "/rerank": "/v1/rerank", "/v2/rerank": "/v1/rerank"}
"""Those of vLLM, and of Cohere's clients."""


def served_path(path: str) -> str:
    """The path that is served, without a slash at its end."""
    path = path.rstrip("/") or "/"
    return OTHER_PATHS.get(path, path)
