"""The host tier of the KV cache: whether a page is worth its copy, and what became of it.

The radix tree says which page has which slot of the host pool; `Copies` moves the bytes. An error of a copy fails no
request: pages that were to be stored are lost, what was to be loaded is computed, and nothing that the pool holds is
trusted any more.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

logger = logging.getLogger("graphpod.engine")

EVICTED_AT_ONCE = 16
"""Pages that leave the device together, at least: copies of single pages would each cost the host a launch."""


class HostCacheFailure(StrEnum):
    """Why pages were computed that the host tier should have had."""

    Store = "Store"
    """A copy to the host failed."""
    Load = "Load"
    """A copy to the device failed."""
    Allocation = "Allocation"
    """The pool, or a part of it, could not be allocated."""


class Arrival(Protocol):
    """A load on its way."""

    @property
    def landed(self) -> bool:
        """Whether its pages are on the device."""


class Copies(Protocol):
    """Moves pages between the device and the slots of the host pool, in the order of the calls. Bytes are moved, so
    the element type does not matter; FP8's scales belong to layers, not to pages."""

    page_bytes: int
    store_seconds: float
    """Of all copies to the host that have landed."""
    load_seconds: float
    failed_allocations: int

    @property
    def slots(self) -> int:
        """Pages that the pool has room for now. It grows until the pool is allocated."""

    def allocate(self) -> None:
        """Begins to allocate what is left of the pool: the engine is Ready."""

    def store(self, moved: Mapping[int, int]) -> None:
        """Copies pages, by the slots that take them, as they are when all that was launched has run. RuntimeError or
        MemoryError when it cannot."""

    def load(self, slots: Sequence[int], pages: Sequence[int]) -> Arrival | None:
        """Copies slots to pages; None: they are there. Errors as of `store`."""

    def join(self) -> bool:
        """What is launched from now on runs behind all copies. Whether one of them had not landed."""


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

    def pays(self, pages: int) -> bool:
        """Whether so many pages are worth loading."""
        return self.costs.pays(pages, self._page_size)

    def store(self, moved: Mapping[int, int]) -> bool:
        """Copies pages, by slot, to the host; False when that failed."""
        try:
            self.copies.store(moved)
        except (RuntimeError, MemoryError) as error:
            self._failed(HostCacheFailure.Store, error)
            return False
        self.stored += len(moved)
        return True

    def load(self, slots: Sequence[int], pages: Sequence[int]) -> tuple[bool, Arrival | None]:
        """Copies slots to pages: whether that worked, and the load where it is on its way."""
        try:
            arrival = self.copies.load(slots, pages)
        except (RuntimeError, MemoryError) as error:
            self._failed(HostCacheFailure.Load, error)
            return False, None
        self.loaded += len(slots)
        return True, arrival

    def join(self) -> None:
        """Before a pass is launched."""
        self.waits += self.copies.join()

    def _failed(self, reason: HostCacheFailure, error: Exception) -> None:
        self.failures[reason] += 1
        logger.warning("host KV cache: %s failed, its pages are computed: %s", reason.value.lower(), error)
