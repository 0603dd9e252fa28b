"""The requests that wait, in the order of their admission: those that were set back, then by priority and arrival.

Of every four admissions one goes to the request that came first, whatever its priority. So no request starves: one that
came after k others is admitted with the 4 (k + 1)th admission at the latest.
"""

import itertools
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator

from graphpod_runtime.engine.schedule.sequence import Sequence

TURN = 4
"""One of so many admissions asks for no priority."""

Place = tuple[int, int]
"""Priority and number of arrival."""


class WaitingQueue:
    """A queue of sequences, each in it once."""

    def __init__(self) -> None:
        self._set_back: deque[Sequence] = deque()
        self._arrived: dict[Sequence, Place] = {}
        """In the order of arrival."""
        self._ordered: list[tuple[Place, Sequence]] = []
        self._numbers = itertools.count()
        self._admissions = 0
        """Of those that were not set back."""

    def __len__(self) -> int:
        return len(self._set_back) + len(self._ordered)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._arrived or sequence in self._set_back

    def __iter__(self) -> Iterator[Sequence]:
        """In the order of admission. The queue must not change meanwhile."""
        yield from self._set_back
        oldest = None
        if self._admissions % TURN == TURN - 1 and self._arrived:
            oldest = next(iter(self._arrived))
            yield oldest
        yield from (sequence for _, sequence in self._ordered if sequence is not oldest)

    def append(self, sequence: Sequence) -> None:
        """A new request."""
        place = self._arrived[sequence] = sequence.priority, next(self._numbers)
        insort(self._ordered, (place, sequence), key=_place)

    def set_back(self, sequence: Sequence) -> None:
        """A request that has run already, before all others."""
        self._set_back.appendleft(sequence)

    def admit(self, sequence: Sequence) -> None:
        """Takes out a request that runs from now on."""
        if sequence in self._arrived:
            self._admissions += 1
        self.remove(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Takes out a request."""
        if (place := self._arrived.pop(sequence, None)) is not None:
            del self._ordered[bisect_left(self._ordered, place, key=_place)]
        else:
            self._set_back.remove(sequence)


def _place(entry: tuple[Place, Sequence]) -> Place:
    return entry[0]
