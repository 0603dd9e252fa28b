"""The host tier of the KV cache: whether a page is worth its copy, what became of it, and who must wait for a copy.

The radix tree says which page has which slot of the host pool. `Copies` moves the bytes: stores and loads have a line
each. A page that leaves is written only after its bytes have left, one that comes is read only after its load:
`awaited` says which moves must have landed before a pass uses given pages. A slot is read only after its store. Loads
and stores are cut into moves of bounded size, so that a load follows a store of the same pages at a short distance, and
a turn of the engine's loop launches few of them (`cache/moves.py`).

An error of a copy fails no request: pages that were to be stored are lost, what was to be loaded is computed, and
nothing that the pool holds is trusted any more. Only errors that are the copy's own count as such (`CopyFailed`).
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import NamedTuple, Protocol

from graphpod_runtime.cache.files.file_tier import FileTier
from graphpod_runtime.cache.moves import Awaited, Copy, CopyQueue, Latest, Move, Stored

logger = logging.getLogger("graphpod.engine")

EVICTED_AT_ONCE = 16
"""Pages that leave the device in addition to those that are needed now: copies of single pages would each cost the host
a launch, and the next page that a sequence needs is there without a wait."""
TURN_BYTES = 96 << 20
"""Of each direction that a turn of the loop launches while sequences decode: two moves, whose bytes an H100's memory
moves three times each. They take 0.3 ms of a decode step of 6.7 ms (8B)."""


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


class PoolParts(NamedTuple):
    """What ranks have of a pool that they share."""

    page_bytes: tuple[int, ...]
    """Of a page, at each rank."""
    slots: int
    """Pages, once all is allocated."""
    first_slots: int
    """That each rank has at Ready."""


@dataclass(frozen=True, slots=True)
class LoadCosts:
    """Seconds by the clock of one start: of any load, of each page of a load, of each prompt token that is computed."""

    load: float
    page: float
    token: float

    def pays(self, pages: int, page_size: int) -> bool:
        """Whether so many pages are loaded in less time than their tokens are computed."""
        return pages > 0 and self.load + pages * self.page < pages * page_size * self.token


class HostTier:
    """Of one engine. Copies are called for, and launched turn by turn. One that fails is found out then: `settle` says
    so, and the moves that were called for say that they were given up."""

    def __init__(
        self,
        copies: Copies,
        costs: LoadCosts,
        page_size: int,
        turn_bytes: int = TURN_BYTES,
        clock: Callable[[], float] = time.monotonic,
        parts: PoolParts | None = None,
        files: FileTier | None = None,
    ) -> None:
        """`parts`: of several ranks. `files`: the tier under this one."""
        self.copies, self.costs, self.files = copies, costs, files
        self.parts = parts or PoolParts((copies.page_bytes,), copies.slots, copies.slots)
        self.stored = self.loaded = 0
        """Pages whose copies to the host, and back, were launched."""
        self.hit_tokens = 0
        """Prompt tokens of requests, before their first pass, that were loaded."""
        self.skipped_tokens = 0
        """Those that the pool had, and that are computed because that takes less time."""
        self.failures = dict.fromkeys(HostCacheFailure, 0)
        self.latest_failure = ""
        self.by_rank: Callable[[], list[tuple[int, int]]] = list
        """Bytes that each of several ranks has copied to the host, and back."""
        self.waits = 0
        """Passes that were launched behind copies that had not landed."""
        self.waits_for_all = 0
        """Passes that were launched behind all copies, whichever pages these move."""
        self.wait_seconds = 0.0
        """Of requests, from their admission until a pass could use their pages."""
        self.clock = clock
        self._page_size = page_size
        turn_pages = max(copies.at_once, turn_bytes // copies.page_bytes)
        self._stores = CopyQueue(self._store, turn_pages)
        self._loads = CopyQueue(self._load, turn_pages)
        self._leaving, self._coming, self._filling = Latest(), Latest(), Latest()
        """Pages whose bytes leave, pages that are loaded, slots that are written."""
        self._lost = False
        """A copy has failed since the last `settle`."""
        self._half_done = False
        """A copy has failed since the last pass that waited for all: parts of it may be on their way."""

    def allocate(self) -> None:
        """The engine is Ready: the rest of the pool is allocated, and files are looked at."""
        self.copies.allocate()
        if self.files is not None:
            self.files.begin()

    def close(self) -> None:
        """The engine serves no more: threads of files end, and others may have its part of their folder."""
        if self.files is not None:
            self.files.close()

    def pays(self, pages: int) -> bool:
        """Whether so many pages are worth loading."""
        return self.costs.pays(pages, self._page_size)

    def store(self, moved: Mapping[int, int]) -> None:
        """Calls for copies of pages, by slot, to the host, in this order."""
        if self.files is not None:
            self.files.reused(list(moved))
        left = iter(moved.items())
        while some := dict(islice(left, self.copies.at_once)):
            copy = Copy(list(some), list(some.values()))
            self._leaving.add(copy.pages, copy.left)
            self._filling.add(copy.slots, copy.done)
            self._stores.add(copy)

    def load(self, slots: Sequence[int], pages: Sequence[int]) -> Awaited:
        """Calls for copies of slots to pages, of which the first should be those that leave first; the last of them."""
        for first in range(0, len(slots), self.copies.at_once):
            some = slice(first, first + self.copies.at_once)
            copy = Copy(list(slots[some]), list(pages[some]), done=Awaited(brings=True))
            copy.behind = self._leaving.of(copy.pages) + self._filling.of(copy.slots)
            self._coming.add(copy.pages, copy.done)
            self._loads.add(copy)
        return copy.done

    def filling(self, slots: Sequence[int]) -> list[Awaited]:
        """The moves behind which no store writes to `slots`."""
        return self._filling.of(slots)

    def turn(self, *, everything: bool) -> None:
        """Launches what a turn of the loop may, or everything that was called for."""
        for queue in (self._stores, self._loads):
            while everything and queue.waiting:
                queue.next()
            queue.turn()

    def settle(self) -> bool:
        """Whether no copy has failed since the last call. What the pool holds is not certain otherwise."""
        lost, self._lost = self._lost, False
        return not lost

    def soonest(self, pages: Iterable[int]) -> list[int]:
        """`pages`, those first that may be written first."""
        return sorted(pages, key=self._leaving.number)

    def awaited(self, pages: Sequence[int]) -> list[Awaited]:
        """The moves that must have landed before a pass reads or writes `pages`."""
        return self._leaving.of(pages) + self._coming.of(pages)

    def steps(self, pages: Sequence[int]) -> list[tuple[int, Awaited]]:
        """The same for the first of `pages`: each move with the place from which on it must have landed."""
        return sorted(self._leaving.steps(pages) + self._coming.steps(pages), key=lambda step: step[0])

    def join(self, moves: Sequence[Awaited]) -> None:
        """Before a pass is launched that uses what these move."""
        late = [move for move in moves if not move.landed]
        while any(not move.launched for move in late):
            (self._stores if self._stores.waiting else self._loads).next()
        assert not any(move.lost for move in moves), "a pass reads pages whose load was given up"
        if on_device := [move.move for move in late if move.move is not None]:
            self.copies.wait(on_device)
            self.waits += 1

    def join_all(self) -> None:
        """Before a pass is launched that writes any pages."""
        self.turn(everything=True)
        self.copies.wait_for_all()
        self._half_done = False
        self.waits_for_all += 1

    @property
    def half_done(self) -> bool:
        """Whether the next pass must wait for all copies, because one of them has failed."""
        return self._half_done

    def _store(self, copy: Copy) -> None:
        try:
            stored = self.copies.store(dict(zip(copy.slots, copy.pages, strict=True)))
        except (CopyFailed, MemoryError) as error:
            self._failed(HostCacheFailure.Store, copy, error)
            return
        copy.left.move, copy.done.move = stored
        self.stored += len(copy.pages)

    def _load(self, copy: Copy) -> None:
        behind = [one.move for one in copy.behind if one.move is not None]
        try:
            copy.done.move = self.copies.load(copy.slots, copy.pages, behind)
        except (CopyFailed, MemoryError) as error:
            self._failed(HostCacheFailure.Load, copy, error)
            return
        self.loaded += len(copy.pages)

    def _failed(self, reason: HostCacheFailure, copy: Copy, error: Exception) -> None:
        self.failures[reason] += 1
        self.latest_failure = f"{reason.value.lower()}: {error}"
        self._lost = self._half_done = True
        # Loads may be of slots that this, or a store behind it, was to fill.
        copy.give_up()
        for queue in (self._stores, self._loads):
            queue.give_up()
        logger.warning("host KV cache: %s failed, its pages are computed: %s", reason.value.lower(), error)
