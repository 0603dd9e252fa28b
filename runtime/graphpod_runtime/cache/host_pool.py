"""The host pool on a CPU: slots in plain memory, copies that are done when the call returns.

A slot holds the bytes of a page layer by layer, keys before values: [layers, 2, bytes].
"""

import math
import time
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from graphpod_runtime.cache.kv import KvCache, reserved

MEASURED = 5
"""Copies of a page that are timed; the fastest counts."""


def halves(cache: KvCache) -> tuple[Tensor, Tensor]:
    """Keys and values as bytes, each [layers, pages, bytes]."""
    keys, values = (half.view(torch.uint8).flatten(2) for half in (cache.keys, cache.values))
    return keys, values


def slot_shape(cache: KvCache) -> tuple[int, int, int]:
    """[layers, 2, bytes] of a page."""
    keys, _ = halves(cache)
    return keys.shape[0], 2, keys.shape[2]


class HostPool:
    """Is Copies, of a cache in the host's own memory."""

    failed_allocations = 0

    def __init__(self, cache: KvCache, size: int) -> None:
        """As many slots as `size` bytes hold; the system gives one its memory when it is first written."""
        shape = slot_shape(cache)
        self.page_bytes = math.prod(shape)
        self.slots = size // self.page_bytes
        self.store_seconds = self.load_seconds = 0.0
        self._keys, self._values = halves(cache)
        self._pool = reserved((self.slots, *shape), torch.uint8)

    def allocate(self) -> None:
        """Nothing is left: the system gives memory when it is written."""

    def store(self, moved: Mapping[int, int]) -> None:
        began = time.perf_counter()
        for slot, page in moved.items():
            place = self._pool[slot]
            place[:, 0].copy_(self._keys[:, page])
            place[:, 1].copy_(self._values[:, page])
        self.store_seconds += time.perf_counter() - began

    def load(self, slots: Sequence[int], pages: Sequence[int]) -> None:
        began = time.perf_counter()
        for slot, page in zip(slots, pages, strict=True):
            place = self._pool[slot]
            self._keys[:, page].copy_(place[:, 0])
            self._values[:, page].copy_(place[:, 1])
        self.load_seconds += time.perf_counter() - began

    def join(self) -> bool:
        return False

    def measured(self) -> tuple[float, float]:
        """Seconds of a load, and of each of its pages."""
        if not self.slots:
            return 0.0, 0.0
        into = torch.empty_like(self._pool[0])
        seconds = []
        for _ in range(MEASURED):
            began = time.perf_counter()
            into.copy_(self._pool[0])
            seconds.append(time.perf_counter() - began)
        return 0.0, min(seconds)
