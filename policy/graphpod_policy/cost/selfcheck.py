"""Which passes the self-check of a ladder makes: the engine makes them, and a start is estimated by them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from graphpod_policy.enums import Device
from graphpod_policy.ladder.ladder import Ladder

LONG_ROW: dict[Device, int] = {Device.Cuda: 1200, Device.Cpu: 0}
"""Tokens of the first row of a checked decode step, where context and cache have room for them. Our kernel on a GPU
cuts such a row into five parts or more and adds them up, and most windows are shorter. 0: as many as the other rows
have; a CPU has no parts, and attention would pad every row to the first.
"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One replay of `count` real rows on the graph of `size`. `uncaptured`: it is compared, bit for bit, with the code
    that was captured; `eager`: with plain eager, within what padding does to that.
    """

    size: int
    count: int
    uncaptured: bool
    eager: bool

    @property
    def padded(self) -> int:
        """Rows of the second pass of plain eager, which shows what padding does."""
        return max(self.size, self.count + 1)

    @property
    def rows(self) -> int:
        """Rows of all passes together."""
        return self.size * (1 + self.uncaptured) + (self.count + self.padded if self.eager else 0)


def comparisons(sizes: Ladder) -> Iterator[Comparison]:
    """Every graph once with the code that it captured; with plain eager s-1, s and s+1 rows at the smallest, the middle
    and the largest size. Ascending; a replay serves both, the first of a size with the most padding. The middle is that
    of logarithms: the middle of the list is so large on a default ladder that its passes cost as much as the largest's.
    """
    smallest, largest = sizes[0], sizes[-1]
    middle = min(sizes, key=lambda size: abs(size * size - smallest * largest))
    sampled = (smallest, middle, largest)
    near = {count for size in sampled for count in (size - 1, size, size + 1) if 1 <= count <= largest}
    for below, size in pairwise((0, *sizes)):
        counts = sorted(count for count in near if below < count <= size)
        yield Comparison(size, counts[0] if counts else size - size // 8, uncaptured=True, eager=bool(counts))
        yield from (Comparison(size, count, uncaptured=False, eager=True) for count in counts[1:])


def checked_rows(sizes: Ladder) -> int:
    """Rows that the self-check of a ladder runs, padding included."""
    return sum(comparison.rows for comparison in comparisons(sizes)) if sizes else 0
