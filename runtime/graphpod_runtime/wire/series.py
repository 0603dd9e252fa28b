"""One series of a process: a number or a histogram. To count looks nothing up and checks nothing."""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Protocol

Key = tuple[str, tuple[str, ...]]
"""A metric's name, and its labels' values in the order of the metric table."""


class Add(Protocol):
    """Raises one counter."""

    def __call__(self, amount: float = 1) -> None: ...


class Observe(Protocol):
    """Adds so many equal observations to one histogram."""

    def __call__(self, value: float, times: int = 1) -> None: ...


class Together:
    """Series that one event counts in at once."""

    def __init__(self, same: Iterable[tuple[Add | Observe, float]], own: Iterable[Observe]) -> None:
        """`same` get the same number each time, `own` one of the event's values each, in their order."""
        self._same, self._own = tuple(same), tuple(own)

    def __call__(self, *values: float) -> None:
        for count, number in self._same:
            count(number)
        for observe, value in zip(self._own, values, strict=True):
            observe(value)


class Total:
    """A counter or a gauge."""

    def __init__(self, key: Key, changed: set[Key]) -> None:
        """`changed` gets `key` whenever the value changes."""
        self._key, self._changed = key, changed
        self.value: float = 0
        changed.add(key)

    def add(self, amount: float = 1) -> None:
        """Is an Add."""
        self.value += amount
        self._changed.add(self._key)

    def set(self, value: float) -> None:
        """The same value is no change."""
        if value != self.value:
            self.value = value
            self._changed.add(self._key)


class Histogram:
    """Counts by bound, not cumulative, the last one above all bounds; and the sum of what was observed."""

    def __init__(self, key: Key, bounds: tuple[float, ...], changed: set[Key]) -> None:
        """As Total."""
        self._key, self._bounds, self._changed = key, bounds, changed
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        changed.add(key)

    def observe(self, value: float, times: int = 1) -> None:
        """Is an Observe."""
        self.counts[bisect_left(self._bounds, value)] += times
        self.total += value * times
        self._changed.add(self._key)
