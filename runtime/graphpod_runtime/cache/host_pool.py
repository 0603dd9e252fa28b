"""The host pool on a CPU: slots in plain memory, copies that are done when the call returns.

A slot holds the bytes of a page layer by layer, keys before values: [layers, halves, bytes].
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from graphpod_policy.start.footprint import STAGING_BYTES
from graphpod_runtime.cache.kv import KvCache, reserved
from graphpod_runtime.cache.moves import Done, Move, Stored

MEASURED = 5
"""Loads that are timed; the fastest counts."""
MEASURED_PAGES = 16
"""Of the longer ones."""


def halves(cache: KvCache) -> tuple[Tensor, ...]:
    """Keys and values as bytes, each [layers, pages, bytes]; one of them where they are the same."""
    return tuple(half.view(torch.uint8).flatten(2) for half in cache.halves)


def slot_shape(cache: KvCache) -> tuple[int, int, int]:
    """[layers, halves, bytes] of a page."""
    first, *others = halves(cache)
    return first.shape[0], 1 + len(others), first.shape[2]


def load_costs(pages: int, load: Callable[[Sequence[int], Sequence[int]], object]) -> tuple[float, float]:
    """Seconds of a load, and of each of its pages, of a `load` that returns when it has landed: slots 0 to `pages` go
    to the pages from 1 on. No sequence may have these."""

    def seconds(count: int) -> float:
        began = time.perf_counter()
        load(range(count), range(1, count + 1))
        return time.perf_counter() - began

    if pages < 2:
        return 0.0, seconds(1) if pages else 0.0
    one, all_of_them = (min(seconds(count) for _ in range(MEASURED)) for count in (1, pages))
    page = max(0.0, all_of_them - one) / (pages - 1)
    return max(0.0, one - page), page


class HostPool:
    """Is Copies, of a cache in the host's own memory."""

    failed_allocations = 0

    def __init__(self, cache: KvCache, size: int) -> None:
        """As many slots as `size` bytes hold; the system gives one its memory when it is first written."""
        shape = slot_shape(cache)
        self.page_bytes = math.prod(shape)
        self.at_once = max(1, STAGING_BYTES // self.page_bytes)
        self.slots = size // self.page_bytes
        self.store_seconds = self.load_seconds = 0.0
        self._halves = halves(cache)
        self._pool = reserved((self.slots, *shape), torch.uint8)

    def allocate(self) -> None:
        """Nothing is left: the system gives memory when it is written."""

    def store(self, moved: Mapping[int, int]) -> Stored:
        began = time.perf_counter()
        for slot, page in moved.items():
            place = self._pool[slot]
            for number, half in enumerate(self._halves):
                place[:, number].copy_(half[:, page])
        self.store_seconds += time.perf_counter() - began
        return Stored(Done(), Done())

    def load(self, slots: Sequence[int], pages: Sequence[int], behind: Iterable[Move] = ()) -> Move:
        began = time.perf_counter()
        for slot, page in zip(slots, pages, strict=True):
            place = self._pool[slot]
            for number, half in enumerate(self._halves):
                half[:, page].copy_(place[:, number])
        self.load_seconds += time.perf_counter() - began
        return Done()

    def content(self, slot: int) -> memoryview:
        """The bytes of a slot, in place: [page_bytes]."""
        return memoryview(self._pool[slot].view(-1).numpy())

    def drain(self) -> None:
        """No copy is on its way."""

    def wait(self, moves: Iterable[Move]) -> None:
        """All of them have landed."""

    def wait_for_all(self) -> None:
        """They have."""

    def measured(self) -> tuple[float, float]:
        """Seconds of a load, and of each of its pages. The cache holds the same afterwards."""
        few = min(MEASURED_PAGES, self.slots, self._halves[0].shape[1] - 1)
        self.store({slot: slot + 1 for slot in range(few)})
        costs = load_costs(few, self.load)
        self.store_seconds = self.load_seconds = 0.0
        return costs
