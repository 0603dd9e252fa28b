"""Which bytes of a file are there and which are missing. Pure."""

from collections.abc import Iterable

PIECE = 32 << 20
"""Bytes of one request. What a kill can lose is one piece for each connection."""

Span = tuple[int, int]
"""Start, and the byte after the end."""


def joined(spans: Iterable[Span]) -> list[Span]:
    """The same bytes as the fewest spans, in order."""
    found: list[Span] = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def missing(there: Iterable[Span], size: int, piece: int = PIECE) -> list[Span]:
    """What of `size` bytes is not there, in pieces of at most `piece` bytes."""
    gaps, at = [], 0
    for start, end in [*joined(there), (size, size)]:
        if at < start:
            gaps.append((at, min(start, size)))
        at = max(at, end)
    return [(at, min(at + piece, end)) for start, end in gaps for at in range(start, end, piece)]


def count(spans: Iterable[Span]) -> int:
    """Bytes of spans, each once."""
    return sum(end - start for start, end in joined(spans))
