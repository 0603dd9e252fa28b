"""The host tier of the KV cache: whether a page is worth its copy, what became of it, and who must wait for a copy.

The radix tree says which page has which slot of the host pool. `Copies` moves the bytes: stores and loads have a line
each. A page that leaves is written only after its bytes have left, one that comes is read only after its load:
`awaited` says which moves must have landed before a pass uses given pages. A slot is read only after its store. Loads
and stores are cut into moves of bounded size, so that a load follows a store of the same pages at a short distance.

An error of a copy fails no request: pages that were to be stored are lost, what was to be loaded is computed, and
nothing that the pool holds is trusted any more. Only errors that are the copy's own count as such (`CopyFailed`).
"""

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import NamedTuple, Protocol

logger = logging.getLogger("graphpod.engine")

EVICTED_AT_ONCE = 16
"""Pages that leave the device in addition to those that are needed now: copies of single pages would each cost the host
a launch, and the next page that a sequence needs is there without a wait."""


class HostCacheFailure(StrEnum):
    """Why pages were computed that the host tier should have had."""

    Store = "Store"
    """A copy to the host failed."""
    Load = "Load"
    """A copy to the device failed."""
    Allocation = "Allocation"
    """The pool, or a part of it, could not be allocated."""


class CopyFailed(Exception):
    """A copy could not be launched, for a reason of its own."""


class Move(Protocol):
    """Pages on their way."""

    @property
    def landed(self) -> bool:
        """Whether they have come, or left."""


class Done:
    """Is Move, of a copy that is done when its call returns."""

    landed = True


class Stored(NamedTuple):
    """What a store lets happen, and when."""

    left: Move
    """Its pages may be written."""
    kept: Move
    """Its slots may be read. Not before `left`."""


class Copies(Protocol):
    """Moves pages between the device and the slots of the host pool. Stores land in the order of their calls, and so do
    loads. Bytes are moved, so the element type does not matter; FP8's scales belong to layers, not to pages."""

    page_bytes: int
    at_once: int
    """Pages of one call, at most."""
    failed_allocations: int

    @property
    def slots(self) -> int:
        """Pages that the pool has room for now. It grows until the pool is allocated."""

    @property
    def store_seconds(self) -> float:
        """Of all copies to the host that have landed."""

    @property
    def load_seconds(self) -> float:
        """Of all copies to the device that have landed."""

    def allocate(self) -> None:
        """Begins to allocate what is left of the pool: the engine is Ready."""

    def store(self, moved: Mapping[int, int]) -> Stored:
        """Copies pages, by the slots that take them, as they are when all that was launched has run. CopyFailed or
        MemoryError when it cannot."""

    def load(self, slots: Sequence[int], pages: Sequence[int], behind: Iterable[Move]) -> Move:
        """Copies slots to pages, behind these moves and all that was launched. Errors as of `store`."""

    def wait(self, moves: Iterable[Move]) -> None:
        """What is launched from now on runs behind `moves`."""

    def wait_for_all(self) -> None:
        """What is launched from now on runs behind all copies, those that failed half done included."""


@dataclass(frozen=True, slots=True)
class LoadCosts:
    """Seconds by the clock of one start: of any load, of each page of a load, of each prompt token that is computed."""

    load: float
    page: float
    token: float

    def pays(self, pages: int, page_size: int) -> bool:
        """Whether so many pages are loaded in less time than their tokens are computed."""
        return pages > 0 and self.load + pages * self.page < pages * page_size * self.token


class _Line:
    """Moves of one direction by what they move: pages or slots. A later one of the same replaces the former."""

    def __init__(self) -> None:
        self._moves: dict[int, tuple[int, Move]] = {}
        self._order: deque[tuple[int, Move, list[int]]] = deque()
        self._number = 0

    def add(self, moved: Iterable[int], move: Move) -> None:
        """`move` is the latest."""
        self.tidy()
        if not move.landed:
            self._number += 1
            self._order.append((self._number, move, list(moved)))
            self._moves.update(dict.fromkeys(self._order[-1][2], (self._number, move)))

    def latest(self, moved: Iterable[int]) -> list[Move]:
        """The one behind which all of these have landed; none where they have."""
        if not self._moves:
            return []
        found = max((self._moves[one] for one in moved if one in self._moves), key=lambda entry: entry[0], default=None)
        return [] if found is None or found[1].landed else [found[1]]

    def number(self, one: int) -> int:
        """Its place in the line; 0 where nothing is known of it."""
        return self._moves.get(one, (0,))[0]

    def tidy(self) -> None:
        """Forgets what has landed."""
        while self._order and self._order[0][1].landed:
            number, _, moved = self._order.popleft()
            for one in moved:
                if self.number(one) == number:
                    del self._moves[one]


class HostTier:
    """Of one engine."""

    def __init__(self, copies: Copies, costs: LoadCosts, page_size: int) -> None:
        self.copies, self.costs = copies, costs
        self.stored = self.loaded = 0
        """Pages that were copied to the host, and back."""
        self.hit_tokens = 0
        """Prompt tokens of requests, at their first admission, that were loaded."""
        self.skipped_tokens = 0
        """Those that the pool had, and that are computed because that takes less time."""
        self.failures = dict.fromkeys(HostCacheFailure, 0)
        self.waits = 0
        """Passes that were launched behind copies that had not landed."""
        self._page_size = page_size
        self._leaving, self._coming, self._filling = _Line(), _Line(), _Line()
        """Pages whose bytes leave, pages that are loaded, slots that are written."""

    def pays(self, pages: int) -> bool:
        """Whether so many pages are worth loading."""
        return self.costs.pays(pages, self._page_size)

    def store(self, moved: Mapping[int, int]) -> bool:
        """Copies pages, by slot, to the host; False when that failed."""
        left = iter(moved.items())
        try:
            while some := dict(islice(left, self.copies.at_once)):
                stored = self.copies.store(some)
                self._leaving.add(some.values(), stored.left)
                self._filling.add(some, stored.kept)
                self.stored += len(some)
        except (CopyFailed, MemoryError) as error:
            self._failed(HostCacheFailure.Store, error)
            return False
        return True

    def load(self, slots: Sequence[int], pages: Sequence[int]) -> Move | None:
        """Copies slots to pages, of which the first should be those that leave first. The last move of it; None when it
        failed."""
        move: Move = Done()
        try:
            for first in range(0, len(slots), self.copies.at_once):
                some = slice(first, first + self.copies.at_once)
                behind = (*self._leaving.latest(pages[some]), *self._filling.latest(slots[some]))
                move = self.copies.load(slots[some], pages[some], behind)
                self._coming.add(pages[some], move)
                self.loaded += len(pages[some])
        except (CopyFailed, MemoryError) as error:
            self._failed(HostCacheFailure.Load, error)
            return None
        return move

    def soonest(self, pages: Iterable[int]) -> list[int]:
        """`pages`, those first that may be written first."""
        return sorted(pages, key=self._leaving.number)

    def awaited(self, pages: Sequence[int]) -> list[Move]:
        """The moves that must have landed before a pass reads or writes `pages`."""
        return self._leaving.latest(pages) + self._coming.latest(pages)

    def join(self, moves: Sequence[Move]) -> None:
        """Before a pass is launched that uses what these move."""
        if late := [move for move in moves if not move.landed]:
            self.copies.wait(late)
            self.waits += 1

    def _failed(self, reason: HostCacheFailure, error: Exception) -> None:
        self.failures[reason] += 1
        logger.warning("host KV cache: %s failed, its pages are computed: %s", reason.value.lower(), error)
