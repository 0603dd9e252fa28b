"""Choices of routers that a comparison holds still.

Two experts of nearly the same score change places when something is rounded differently, and the results of their token
are another expert's from there on. Who compares a function that contains a router with the code that was compiled from
it pins the choices of the first run, and what is left are roundings.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor


class PinnedChoices:
    """The choices of the routers of one run, in their order."""

    def __init__(self) -> None:
        self._noted: list[Tensor] = []
        self._next: int | None = None

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Within, choices are made and noted."""
        self._noted.clear()
        with _active(self):
            yield

    @contextmanager
    def repeated(self) -> Iterator[None]:
        """Within, the routers of the same function choose what was noted."""
        self._next = 0
        with _active(self):
            yield
        self._next = None

    def _settled(self, choices: Tensor) -> Tensor:
        if self._next is None:
            self._noted.append(choices.clone())
            return choices
        self._next += 1
        return self._noted[self._next - 1]


_pinned: PinnedChoices | None = None


def settled(choices: Tensor) -> Tensor:
    """The choices that count: `choices`, unless a comparison repeats those of another run."""
    return choices if _pinned is None else _pinned._settled(choices)


@contextmanager
def _active(pinned: PinnedChoices) -> Iterator[None]:
    global _pinned
    _pinned = pinned
    try:
        yield
    finally:
        _pinned = None
