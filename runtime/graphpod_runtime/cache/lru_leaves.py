"""Leaves of the radix tree by their last use."""

import heapq
import itertools
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Used(Protocol):
    """What a leaf has of its own."""

    used: int


Leaf = TypeVar("Leaf", bound=Used)


class Leaves(Generic[Leaf]):
    """A heap whose entries may be out of date: a node that was used since, or is no leaf any more, is skipped. It is
    noted again when it becomes a leaf."""

    def __init__(self, is_leaf: Callable[[Leaf], bool]) -> None:
        self._is_leaf = is_leaf
        self._heap: list[tuple[int, int, Leaf]] = []
        self._numbers = itertools.count()

    def note(self, node: Leaf, nodes: int) -> None:
        """`node` is a leaf now, of a tree of so many `nodes`, which bounds the heap."""
        heapq.heappush(self._heap, (node.used, next(self._numbers), node))
        if len(self._heap) > 2 * nodes + 64:
            self._heap = list({entry[2]: entry for entry in self._heap if self._true(entry)}.values())
            heapq.heapify(self._heap)

    def take(self) -> Leaf | None:
        """The least recently used leaf, whose entry is gone; None when there is none."""
        while self._heap:
            entry = heapq.heappop(self._heap)
            if self._true(entry):
                return entry[2]
        return None

    def _true(self, entry: tuple[int, int, Leaf]) -> bool:
        return self._is_leaf(entry[2]) and entry[0] == entry[2].used
