"""What both processes ask of a request's numbers."""

LEAST = 1e-5
"""A temperature or top_p below it draws the likeliest token anyway, and single precision would divide by its 0."""


def outside(tokens: list[int], vocabulary: int) -> str | None:
    """Why a model of ids 0 to vocabulary - 1 cannot read `tokens`; None when it can. On a device such an id reads
    memory that is not the embedding's, or ends the process.
    """
    if not tokens or (min(tokens) >= 0 and max(tokens) < vocabulary):
        return None
    at, token = next((at, token) for at, token in enumerate(tokens) if not 0 <= token < vocabulary)
    return f"token id {token} at position {at} of the prompt is out of vocabulary: the ids are 0 to {vocabulary - 1}"
