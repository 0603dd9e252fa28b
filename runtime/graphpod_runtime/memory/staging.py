"""Copies of large tensors from the host to a GPU, through pinned slabs.

Of pageable memory, such as a mapped file, the driver makes pinned pieces itself: one thread faults in and copies a page
after the other, and the device waits for it. Here several threads copy into one slab, while the device copies from
those before it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

import torch
from torch import Tensor

from graphpod_runtime.base.process.processors import whole_processors
from graphpod_runtime.memory.pinned_cache import release_pinned

SLAB_BYTES = 32 << 20
"""A power of two: torch rounds pinned memory up to one."""
SLABS = 3
THREADS = 8
"""That copy into a slab, where there are as many processors; OMP_NUM_THREADS and `spec.engine.threads` are of what a
CPU computes. One thread copies a fifth of what a GPU's link takes."""
LEAST_BYTES = 1 << 20
"""Smaller copies are the driver's: two of them would take longer than its one."""


class Copied(Protocol):
    """A point on a stream, as `torch.cuda.Event` is one."""

    def record(self) -> None: ...

    def synchronize(self) -> None: ...


class Staging:
    """Slabs lent in turn, each only after the copy out of it has happened."""

    def __init__(self, slabs: list[Tensor], copied: list[Copied]) -> None:
        """`slabs` are of bytes, all of one size, with an event each."""
        self._slabs, self._copied = slabs, copied
        self._next = 0

    def put(self, into: Tensor, source: Tensor) -> None:
        """`source` to `into`, both contiguous and of one type and shape. The device may still copy when this returns:
        on the current stream, and `source` has been read."""
        there, here = (tensor.view(-1).view(torch.uint8) for tensor in (into, source))
        for part, place in zip(here.split(len(self._slabs[0])), there.split(len(self._slabs[0])), strict=True):
            slab, copied = self._slabs[self._next], self._copied[self._next]
            self._next = (self._next + 1) % len(self._slabs)
            copied.synchronize()
            place.copy_(slab[: len(part)].copy_(part), non_blocking=True)
            copied.record()

    def wait(self) -> None:
        """Until every copy has happened."""
        for copied in self._copied:
            copied.synchronize()


_CURRENT: ContextVar[Staging | None] = ContextVar("staging", default=None)


@contextmanager
def staged(device: torch.device, size: int = SLAB_BYTES) -> Iterator[None]:
    """Within, `put` of this thread goes through slabs of `size` bytes, if `device` is a GPU. All copies have happened,
    and the slabs are given back, when the block ends."""
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device):
        slabs = [torch.empty(size, dtype=torch.uint8, pin_memory=True) for _ in range(SLABS)]
        staging = Staging(slabs, [torch.cuda.Event() for _ in slabs])
        with copying_threads(), using(staging):
            yield
    del slabs, staging
    release_pinned()


@contextmanager
def copying_threads() -> Iterator[None]:
    """Within, torch has at least as many threads as copy into a slab."""
    threads = torch.get_num_threads()
    torch.set_num_threads(max(threads, min(THREADS, whole_processors())))
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def using(staging: Staging) -> Iterator[None]:
    """Within, `put` of this thread goes through `staging`, whose copies have happened when the block ends."""
    token = _CURRENT.set(staging)
    try:
        yield
    finally:
        _CURRENT.reset(token)
        staging.wait()


def put(into: Tensor, source: Tensor) -> None:
    """`source` to `into`, which has its shape: as `Tensor.copy_`, through slabs where it may be."""
    staging = _CURRENT.get()
    whole = into.dtype is source.dtype and into.is_contiguous() and source.is_contiguous()
    if staging is None or not whole or source.nbytes < LEAST_BYTES or source.device.type != "cpu" or source.is_pinned():
        into.copy_(source)
    else:
        staging.put(into, source)
