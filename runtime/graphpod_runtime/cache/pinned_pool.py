"""The host pool of a GPU: pinned slabs, and copies on a stream of their own.

Order is kept on the device, the host waits for nothing. Copies run behind all passes that were launched before them,
and passes behind all copies that were called for before (`join`): so a page is written by its next owner only after its
bytes have left, and read only after they have come. All copies share one stream, so a slot is read after it was
written.

The first slots are there at once, to be measured. The rest is pinned by a thread, slab by slab, after the engine is
Ready: that takes the system seconds for each 10 GiB.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from graphpod_runtime.cache.host_pool import MEASURED, halves, slot_shape
from graphpod_runtime.cache.host_tier import EVICTED_AT_ONCE
from graphpod_runtime.cache.kv import KvCache

SLAB_BYTES = 256 << 20
"""A power of two: torch pins no other amounts."""
RESERVE_BYTES = 256 << 20
"""Of host memory, left to all else that runs in the container."""


class PinnedArrival:
    """Is Arrival."""

    __slots__ = ("_event",)

    def __init__(self, event: torch.cuda.Event) -> None:
        self._event = event

    @property
    def landed(self) -> bool:
        return self._event.query()


class PinnedPool:
    """Is Copies, of a cache on a GPU."""

    def __init__(self, cache: KvCache, size: int, available: Callable[[], int]) -> None:
        """As many slots as `size` bytes hold, in whole slabs; few of them until `allocate` has run. RESERVE_BYTES of
        the host's `available` bytes stay free: pinning beyond a container's limit would not fail but end it."""
        self._shape = slot_shape(cache)
        self.page_bytes = math.prod(self._shape)
        self.store_seconds = self.load_seconds = 0.0
        self.failed_allocations = 0
        self._device = cache.device
        self._halves = halves(cache)
        self._size, self._available = size, available
        self._stream = torch.cuda.Stream(cache.device)
        self._staging = torch.empty((EVICTED_AT_ONCE, *self._shape), dtype=torch.uint8, device=cache.device)
        self._latest: torch.cuda.Event | None = None
        """Behind all copies; None: passes run behind them already."""
        self._timed: deque[tuple[Callable[[float], None], torch.cuda.Event, torch.cuda.Event]] = deque()
        self._places: list[Tensor] = []
        """Of each slot, [layers, 2, bytes]."""
        self._pin(min(EVICTED_AT_ONCE, size // self.page_bytes))

    @property
    def slots(self) -> int:
        return len(self._places)

    def allocate(self) -> None:
        """Pins the rest in a thread."""
        threading.Thread(target=self._allocate, name="host-cache", daemon=True).start()

    def store(self, moved: Mapping[int, int]) -> None:
        slots, pages = list(moved), list(moved.values())
        with self._in_line(self._stored):
            for first in range(0, len(slots), EVICTED_AT_ONCE):
                some = slots[first : first + EVICTED_AT_ONCE]
                at = self._at(pages[first : first + EVICTED_AT_ONCE])
                for number, half in enumerate(self._halves):
                    self._staging[: len(some), :, number].copy_(half.index_select(1, at).transpose(0, 1))
                for row, slot in enumerate(some):
                    self._places[slot].copy_(self._staging[row], non_blocking=True)

    def load(self, slots: Sequence[int], pages: Sequence[int]) -> PinnedArrival:
        with self._in_line(self._loaded) as ended:
            for first in range(0, len(slots), EVICTED_AT_ONCE):
                some = slots[first : first + EVICTED_AT_ONCE]
                at = self._at(pages[first : first + EVICTED_AT_ONCE])
                for row, slot in enumerate(some):
                    self._staging[row].copy_(self._places[slot], non_blocking=True)
                for number, half in enumerate(self._halves):
                    half.index_copy_(1, at, self._staging[: len(some), :, number].transpose(0, 1))
        return PinnedArrival(ended)

    def join(self) -> bool:
        self._note_times()
        if self._latest is None:
            return False
        waited = not self._latest.query()
        torch.cuda.current_stream(self._device).wait_event(self._latest)
        self._latest = None
        return waited

    def measured(self) -> tuple[float, float]:
        """Seconds of a load, and of each of its pages."""
        few = min(EVICTED_AT_ONCE, self.slots)
        if few < 2:
            return 0.0, 0.0
        one, all_of_them = self._seconds(1), self._seconds(few)
        page = max(0.0, all_of_them - one) / (few - 1)
        return max(0.0, one - page), page

    def _seconds(self, pages: int) -> float:
        """Of loading so many pages into the staging memory."""
        seconds = []
        for _ in range(MEASURED):
            torch.cuda.synchronize(self._device)
            began = time.perf_counter()
            with torch.cuda.stream(self._stream):
                for row in range(pages):
                    self._staging[row].copy_(self._places[row], non_blocking=True)
            torch.cuda.synchronize(self._device)
            seconds.append(time.perf_counter() - began)
        return min(seconds)

    @contextmanager
    def _in_line(self, took: Callable[[float], None]) -> Iterator[torch.cuda.Event]:
        """What is launched in here runs behind all passes launched so far; the event stands behind it, whatever
        happens."""
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        began.record(self._stream)
        try:
            with torch.cuda.stream(self._stream):
                yield ended
        finally:
            ended.record(self._stream)
            self._latest = ended
        self._timed.append((took, began, ended))

    def _at(self, pages: Sequence[int]) -> Tensor:
        return torch.tensor(pages).to(self._device, non_blocking=True)

    def _note_times(self) -> None:
        while self._timed and self._timed[0][2].query():
            took, began, ended = self._timed.popleft()
            took(began.elapsed_time(ended) / 1000)

    def _stored(self, seconds: float) -> None:
        self.store_seconds += seconds

    def _loaded(self, seconds: float) -> None:
        self.load_seconds += seconds

    def _allocate(self) -> None:
        left = self._size // self.page_bytes - self.slots
        of_slab = max(1, SLAB_BYTES // self.page_bytes)
        while left > 0:
            try:
                if self._available() < SLAB_BYTES + RESERVE_BYTES:
                    raise MemoryError
                self._pin(min(left, of_slab))
            except (RuntimeError, MemoryError):
                # What is pinned serves; the failure is counted and shown with the pool's size.
                self.failed_allocations += 1
                return
            left -= of_slab

    def _pin(self, slots: int) -> None:
        slab = torch.empty((slots, *self._shape), dtype=torch.uint8, pin_memory=True)
        self._places += slab.unbind(0)
