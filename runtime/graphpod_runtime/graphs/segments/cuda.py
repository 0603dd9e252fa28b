"""Segments of CUDA stream capture: `torch.cuda.CUDAGraph`s that share one private memory pool."""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from weakref import WeakSet

import torch

from graphpod_runtime.graphs.segments.addresses import Addresses
from graphpod_runtime.graphs.segments.segment import Calls, capture

KEPT_NUMBERS = 256
"""Python makes each int up to it once, and never ends it."""

_NOTED: ContextVar["WeakSet[torch.cuda.CUDAGraph] | None"] = ContextVar("noted", default=None)


@contextlib.contextmanager
def keeping_graphs(kept: list[torch.cuda.CUDAGraph]) -> Iterator[None]:
    """Adds to `kept`, at the end, the graphs that this thread has made within and that are still there. Until then
    those that are dropped must go: their memory is for the next ones.
    """
    noted = WeakSet[torch.cuda.CUDAGraph]()
    token = _NOTED.set(noted)
    try:
        yield
    finally:
        _NOTED.reset(token)
        kept.extend(noted)


class CudaSegment:
    """A Segment of one CUDA graph in the pool of this `handle`. Capture it inside the pool's `capturing()`."""

    def __init__(self, handle: tuple[int, int]) -> None:
        # Not the pool: it keeps a segment itself, and a dropped pool must go without a collector.
        self._handle = handle
        self._graph = torch.cuda.CUDAGraph()
        if (noted := _NOTED.get()) is not None:
            noted.add(self._graph)
        self._forks = _Forks()

    def begin(self) -> None:
        # thread_local: another thread (a heartbeat, a weight loader) may call the driver meanwhile.
        self._graph.capture_begin(pool=self._handle, capture_error_mode="thread_local")
        self._forks.watch()

    def end(self) -> Calls:
        self._forks.forget()
        self._forks.join()
        self._graph.capture_end()
        return (self._graph.replay,)

    def abort(self) -> None:
        self._forks.forget()
        # Of a capture that CUDA itself gave up, ending says so once more; what broke it is what the caller raises.
        with contextlib.suppress(RuntimeError):
            self._graph.capture_end()
        self._graph.reset()


class _Forks:
    """Streams that work was forked to inside a segment: they are joined before it ends, as CUDA demands.

    A stream enters a capture by waiting for an event of the captured stream, so waits are watched. On a CPU there are
    no streams and nothing to join: an operator has run when it returns.
    """

    def __init__(self) -> None:
        self._waiting: list[torch.cuda.Stream] = []

    def watch(self) -> None:
        """Notes every stream that waits from now on."""
        self._right = torch.cuda.Stream.wait_event, torch.cuda.Event.wait

        def wait_event(stream: torch.cuda.Stream, event: torch.cuda.Event) -> None:
            self._waiting.append(stream)
            self._right[0](stream, event)

        def wait(event: torch.cuda.Event, stream: torch.cuda.Stream | None = None) -> None:
            self._waiting.append(torch.cuda.current_stream() if stream is None else stream)
            self._right[1](event, stream)

        torch.cuda.Stream.wait_event, torch.cuda.Event.wait = wait_event, wait  # type: ignore[method-assign]

    def forget(self) -> None:
        """Ends the watch."""
        torch.cuda.Stream.wait_event, torch.cuda.Event.wait = self._right  # type: ignore[method-assign]

    def join(self) -> None:
        """The current stream waits for those that are part of its capture."""
        current = torch.cuda.current_stream()
        for stream in dict.fromkeys(self._waiting):
            with torch.cuda.stream(stream):
                captured = torch.cuda.is_current_stream_capturing()
            if captured and stream != current:
                current.wait_stream(stream)


class CudaPool:
    """A Pool of one device: the private pool of the allocator, and what the driver takes in addition."""

    def __init__(self, device: torch.device, addresses: Addresses) -> None:
        self.handle = torch.cuda.graph_pool_handle()
        self._device = device
        self._addresses = addresses
        self._stream = torch.cuda.Stream(device)
        self._driver_bytes = 0
        self._outside_before: int | None = None
        """While capturing."""
        self._reserve: CudaSegment | None = None

    def warm(self, code: Callable[[], object]) -> None:
        """Runs `code`: libraries set themselves up at a first call. What the first `code` needed at its peak becomes
        one free block of the pool.

        Without it the pool grows by a block for each size of tensor, the blocks are split for smaller ones, and what
        is left of them fits nothing: half of the pool was such rests.
        """
        torch.cuda.synchronize(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        before = torch.cuda.memory_allocated(self._device)
        code()
        torch.cuda.synchronize(self._device)
        if self._reserve is None:
            self._reserve = self._reserved(torch.cuda.max_memory_allocated(self._device) - before)

    def _reserved(self, size: int) -> CudaSegment:
        """A segment that took `size` bytes and gave them back: memory gets into a pool by a capture only."""
        segment = self.segment()

        def take() -> None:
            torch.empty(size, dtype=torch.uint8, device=self._device)[:1].zero_()

        capture(segment, take)
        return segment

    def segment(self) -> CudaSegment:
        return CudaSegment(self.handle)

    @contextlib.contextmanager
    def capturing(self) -> Iterator[None]:
        """A stream of our own, which capture demands. Breaks run on it too, so all work stays in order.

        Blocks that an eager pass left to the allocator are given back first and last, so that the free memory before
        and after differs by what the graphs took.
        """
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        self._outside_before = self._outside()
        try:
            with torch.cuda.stream(self._stream):
                yield
            torch.cuda.synchronize(self._device)
            torch.cuda.empty_cache()
            self._driver_bytes = self.driver_bytes()
        finally:
            self._outside_before = None

    def pool_bytes(self) -> int:
        # torch 2.11 gives back the numbers of the tuple that it is handed once too often: the end of those that Python
        # does not keep for ever. Without a tuple it reports every pool, which takes longer.
        mine = self.handle if max(self.handle) <= KEPT_NUMBERS else None
        parts = torch.cuda.memory_snapshot(mine)
        return sum(part["total_size"] for part in parts if tuple(part["segment_pool_id"]) == tuple(self.handle))

    def driver_bytes(self) -> int:
        now = 0 if self._outside_before is None else max(0, self._outside() - self._outside_before)
        return self._driver_bytes + now

    def verify(self) -> None:
        self._addresses.verify()

    def _outside(self) -> int:
        """Bytes in use on the device that torch's allocator does not hold: graphs, modules, other processes."""
        free, total = torch.cuda.mem_get_info(self._device)
        return total - free - torch.cuda.memory_reserved(self._device)
