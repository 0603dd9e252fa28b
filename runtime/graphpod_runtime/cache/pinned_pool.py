"""The host pool of a GPU: pinned slabs, and two streams, one for stores and one for loads.

Order is kept on the device, and the host waits for nothing:

- A store runs behind all that was launched before it. It gathers its pages into staging memory and copies that to the
  host. From the gather on the pages may be written (`Stored.left`), so their next owner does not wait for the link to
  the host.
- A load runs behind all that was launched before it (a page may be zeroed there) and behind the moves that its caller
  names. It copies its slots into staging memory of its own and scatters that over its pages.
- A pass that uses pages of a move is launched behind its event (`wait`). Others run while it is on its way. A graph
  holds no wait: the event is in front of its launch.

Staging memory bounds a move, and is taken once. Slots that follow each other are one copy. The time of a move is that
between two events on its own stream, in front of its first kernel or copy and behind the last.

The first slots are there at once, to be measured. The rest is pinned by a thread, slab by slab, after the engine is
Ready: that takes the system seconds for each 10 GiB.
"""

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from graphpod_policy.start.footprint import STAGING_BYTES
from graphpod_runtime.cache.host_pool import MEASURED_PAGES, halves, load_costs, slot_shape
from graphpod_runtime.cache.host_tier import CopyFailed
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.cache.moves import Move, Stored
from graphpod_runtime.cache.page_packing import packing_for

SLAB_BYTES = 256 << 20
"""A power of two: torch pins no other amounts."""
RESERVE_BYTES = 256 << 20
"""Of host memory, left to all else that runs in the container."""
MOST_AT_ONCE = 256
"""Pages of a move: their numbers are sent with it."""
WORDS = (torch.int64, torch.int32, torch.int16, torch.uint8)
"""What pages are moved as: the widest that divides the bytes of a page of a layer."""
MEMORY_ALLOCATION = 2
"""cudaErrorMemoryAllocation."""


class PinnedMove:
    """Is Move."""

    __slots__ = ("event",)

    def __init__(self, event: torch.cuda.Event) -> None:
        self.event = event

    @property
    def landed(self) -> bool:
        return self.event.query()


class CopyLine:
    """A stream, and the staging memory [pages, layers, halves, words] of its moves."""

    def __init__(self, device: torch.device, staging: Tensor) -> None:
        # Its kernels are few and short, and who waits for them waits for the link to the host besides.
        self.stream = torch.cuda.Stream(device, priority=-1)
        self.staging = staging
        self.seconds = 0.0
        """Of moves that have landed."""
        self._timed: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()

    @contextmanager
    def move(self) -> Iterator[torch.cuda.Event]:
        """What is launched in here is on the stream; the event stands behind it."""
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(self.stream):
            began.record()
            try:
                yield ended
            except torch.OutOfMemoryError as error:
                raise CopyFailed(str(error)) from error
            ended.record()
        self._timed.append((began, ended))

    def note_times(self) -> None:
        """Adds the moves that have landed to `seconds`."""
        while self._timed and self._timed[0][1].query():
            began, ended = self._timed.popleft()
            self.seconds += began.elapsed_time(ended) / 1000

    def forget_times(self) -> None:
        """Begins to count."""
        self._timed.clear()
        self.seconds = 0.0


class PinnedPool:
    """Is Copies, of a cache on a GPU."""

    def __init__(
        self, cache: KvCache, size: int, available: Callable[[], int], staging_bytes: int = STAGING_BYTES
    ) -> None:
        """As many slots as `size` bytes hold, in whole slabs; few of them until `allocate` has run. RESERVE_BYTES of
        the host's `available` bytes stay free: pinning beyond a container's limit would not fail but end it.
        `staging_bytes` of the device for each direction, at least a page."""
        layers, parts, count = slot_shape(cache)
        self.page_bytes = layers * parts * count
        self.at_once = max(1, min(MOST_AT_ONCE, staging_bytes // self.page_bytes))
        self.failed_allocations = 0
        self._word = next(word for word in WORDS if count % word.itemsize == 0)
        self._slot = (layers, parts, count // self._word.itemsize)
        self._device, self._pages = cache.device, cache.pages
        self._halves = tuple(half.view(self._word) for half in halves(cache))
        """Keys and values, [layers, pages, words]."""
        self._packing = packing_for(cache.device)
        self._stores, self._loads = (
            CopyLine(cache.device, torch.empty((self.at_once, *self._slot), dtype=self._word, device=cache.device))
            for _ in range(2)
        )
        self._size, self._available = size, available
        self._slabs: list[Tensor] = []
        """[slots, layers, halves, words] each."""
        self._firsts: list[int] = []
        """The first slot of each."""
        self.slots = 0
        self._pin(min(MEASURED_PAGES, self._size // self.page_bytes))

    @property
    def store_seconds(self) -> float:
        self._stores.note_times()
        return self._stores.seconds

    @property
    def load_seconds(self) -> float:
        self._loads.note_times()
        return self._loads.seconds

    def allocate(self) -> None:
        """Pins the rest in a thread."""
        threading.Thread(target=self._allocate, name="host-cache", daemon=True).start()

    def store(self, moved: Mapping[int, int]) -> Stored:
        line, slots, left = self._stores, list(moved), torch.cuda.Event()
        line.stream.wait_stream(torch.cuda.current_stream(self._device))
        with line.move() as kept:
            self._packing.gather(self._halves, self._sent(moved.values()), line.staging[: len(slots)])
            left.record()
            for place, first, end in self._runs(slots):
                place.copy_(line.staging[first:end], non_blocking=True)
        return Stored(PinnedMove(left), PinnedMove(kept))

    def load(self, slots: Sequence[int], pages: Sequence[int], behind: Iterable[Move] = ()) -> PinnedMove:
        line = self._loads
        line.stream.wait_stream(torch.cuda.current_stream(self._device))
        self._wait(line.stream, behind)
        with line.move() as landed:
            sent = self._sent(pages)
            for place, first, end in self._runs(slots):
                line.staging[first:end].copy_(place, non_blocking=True)
            self._packing.scatter(line.staging[: len(slots)], sent, self._halves)
        return PinnedMove(landed)

    def content(self, slot: int) -> memoryview:
        """The bytes of a slot, in place: [page_bytes]."""
        slab = bisect_right(self._firsts, slot) - 1
        return memoryview(self._slabs[slab][slot - self._firsts[slab]].view(-1).view(torch.uint8).numpy())

    def drain(self) -> None:
        """Returns when no copy is on its way, those that failed half done included."""
        for line in (self._stores, self._loads):
            line.stream.synchronize()

    def wait(self, moves: Iterable[Move]) -> None:
        self._wait(torch.cuda.current_stream(self._device), moves)

    def wait_for_all(self) -> None:
        current = torch.cuda.current_stream(self._device)
        for line in (self._stores, self._loads):
            current.wait_stream(line.stream)

    def measured(self) -> tuple[float, float]:
        """Seconds of a load, and of each of its pages, until it has landed. The cache holds the same afterwards."""
        few = min(self.slots, self.at_once, self._pages - 1)

        def load(slots: Sequence[int], pages: Sequence[int]) -> None:
            self.load(slots, pages).event.synchronize()

        if few:
            self.store({slot: slot + 1 for slot in range(few)}).kept.event.synchronize()
            load(range(few), range(1, few + 1))
        costs = load_costs(few, load)
        self._stores.forget_times()
        self._loads.forget_times()
        return costs

    def _wait(self, stream: torch.cuda.Stream, moves: Iterable[Move]) -> None:
        for move in moves:
            assert isinstance(move, PinnedMove)
            stream.wait_event(move.event)

    def _sent(self, pages: Iterable[int]) -> Tensor:
        """Their numbers, on the device."""
        return torch.tensor(list(pages)).to(self._device, non_blocking=True)

    def _runs(self, slots: Sequence[int]) -> Iterator[tuple[Tensor, int, int]]:
        """Memory of slots that follow each other in one slab, and which of `slots` they are: [first, end)."""
        first = 0
        while first < len(slots):
            slab = bisect_right(self._firsts, slots[first]) - 1
            at = slots[first] - self._firsts[slab]
            end, most = first + 1, first + len(self._slabs[slab]) - at
            while end < min(most, len(slots)) and slots[end] == slots[end - 1] + 1:
                end += 1
            yield self._slabs[slab][at : at + end - first], first, end
            first = end

    def _allocate(self) -> None:
        left = self._size // self.page_bytes - self.slots
        of_slab = max(1, SLAB_BYTES // self.page_bytes)
        while left > 0:
            try:
                if self._available() < SLAB_BYTES + RESERVE_BYTES:
                    raise MemoryError
                self._pin(min(left, of_slab))
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    # Something that ran before has broken the device: the engine meets the same error and ends.
                    raise
                # What is pinned serves; the failure is counted and shown with the pool's size.
                self.failed_allocations += 1
                return
            left -= of_slab

    def _pin(self, slots: int) -> None:
        self._slabs.append(torch.empty((slots, *self._slot), dtype=self._word, pin_memory=True))
        self._firsts.append(self.slots)
        # Last: from now on other threads use them.
        self.slots += slots


def out_of_memory(error: Exception) -> bool:
    """Whether an allocation failed, on the device or of pinned memory. Any other error of CUDA may be of anything that
    runs on the device."""
    if isinstance(error, torch.AcceleratorError):
        return getattr(error, "error_code", None) == MEMORY_ALLOCATION
    return isinstance(error, torch.OutOfMemoryError | MemoryError | OSError)
