"""Choices of routers that a comparison holds still.

Two experts of nearly the same score change places when something is rounded differently, and the results of their token
are another expert's from there on. Who compares a function that contains a router with the code that was compiled from
it pins the choices of the first run, and what is left are roundings. Scores that would choose quite others are none:
how far a repeated choice is behind the best is measured.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class PinnedChoices:
    """The choices of the routers of one run, in their order."""

    def __init__(self) -> None:
        self._noted: list[Tensor] = []
        self._next: int | None = None
        self.behind = 0.0
        """In the last repeated run: how far the score of a choice was below the least of the scores that run would
        have chosen, in units in the last place of its largest score."""

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Within, choices are made and noted."""
        self._noted.clear()
        with _active(self):
            yield

    @contextmanager
    def repeated(self) -> Iterator[None]:
        """Within, the routers of the same function choose what was noted."""
        self._next, self.behind = 0, 0.0
        try:
            with _active(self):
                yield
        finally:
            self._next = None

    def _settled(self, choices: Tensor, scores: Tensor) -> Tensor:
        if self._next is None:
            self._noted.append(choices.clone())
            return choices
        self._next += 1
        noted = self._noted[self._next - 1]
        unit = torch.finfo(scores.dtype).eps * float(scores.abs().max())
        least, own = (scores.gather(1, each).amin(1).float() for each in (choices, noted))
        if (behind := float((least - own).max())) > 0:
            self.behind = max(self.behind, behind / unit)
        return noted


_pinned: PinnedChoices | None = None


def settled(choices: Tensor, scores: Tensor) -> Tensor:
    """The choices that count: `choices` [tokens, chosen] of the largest `scores` [tokens, experts], unless a comparison
    repeats those of another run."""
    return choices if _pinned is None else _pinned._settled(choices, scores)


@contextmanager
def _active(pinned: PinnedChoices) -> Iterator[None]:
    global _pinned
    _pinned = pinned
    try:
        yield
    finally:
        _pinned = None
