"""The recorder's pool: one reserved stretch of memory with the liveness of CUDA's caching allocator.

A block belongs to the tensors over it. When the last tensor or view of a block is gone, the block is free, and the
next capture, of this size or another, takes it again. So an address that a graph baked in may hold another graph's
values later, exactly as in a CUDA graph pool; whoever reads pool memory after a capture sees that here too.
"""

import mmap
import weakref
from bisect import bisect_left, insort
from typing import NamedTuple

import torch
from torch import Tensor

from graphpod_runtime.base.errors import CaptureOutOfMemory

ALIGNMENT = 64
"""Bytes; a cache line, and enough for every dtype and vector width."""
MAP_NORESERVE = 0x4000
"""Linux flag that Python's mmap does not name: no swap is set aside for the reservation."""


class Block(NamedTuple):
    """A live block: its bytes, and the dtype it was made for."""

    size: int
    dtype: torch.dtype


class Arena:
    """Blocks in one mapping of `limit` bytes. Only pages that were touched take memory."""

    def __init__(self, limit: int = 1 << 32) -> None:
        """CaptureOutOfMemory when the system refuses even the address space."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
        try:
            self._memory = memoryview(mmap.mmap(-1, limit, flags=flags))
        except OSError as error:
            raise CaptureOutOfMemory(f"the system refuses {limit} bytes of address space: {error}") from error
        self._limit = limit
        self._storage = torch.frombuffer(self._memory, dtype=torch.uint8).untyped_storage()
        self._base = self._storage.data_ptr()
        self._free: list[tuple[int, int]] = [(0, limit)]
        """(offset, bytes), ascending, never adjacent."""
        self.live: dict[int, Block] = {}
        """Offset -> block that some tensor still uses."""
        self.high_water = 0
        """Bytes of the mapping that were ever in use: what the pool costs."""

    def empty_like(self, fresh: Tensor) -> Tensor:
        """An uninitialised tensor of `fresh`'s dtype, shape and strides that owns a block.

        CaptureOutOfMemory when no free block holds it.
        """
        span = 1 + sum((n - 1) * stride for n, stride in zip(fresh.shape, fresh.stride(), strict=True))
        size = -(-span * fresh.itemsize // ALIGNMENT) * ALIGNMENT
        offset = self._take(size)
        self.live[offset] = Block(size, fresh.dtype)
        owner = self._memory[offset : offset + size]
        weakref.finalize(owner, self._give_back, offset).atexit = False
        storage = torch.frombuffer(owner, dtype=torch.uint8).untyped_storage()
        return torch.empty(0, dtype=fresh.dtype).set_(storage, 0, fresh.shape, fresh.stride())

    def owns(self, tensor: Tensor) -> bool:
        """Whether `tensor` lies in this pool."""
        return 0 <= tensor.data_ptr() - self._base < self._limit

    def alias(self, tensor: Tensor) -> Tensor:
        """The same elements as `tensor`, which is in this pool, without keeping its block alive."""
        offset = (tensor.data_ptr() - self._base) // tensor.itemsize
        return torch.empty(0, dtype=tensor.dtype).set_(self._storage, offset, tensor.shape, tensor.stride())

    def bytes_of(self, offset: int) -> Tensor:
        """The live block at `offset` as bytes, without keeping it alive."""
        size = self.live[offset].size
        return torch.empty(0, dtype=torch.uint8).set_(self._storage, offset, (size,), (1,))

    def _take(self, size: int) -> int:
        """The lowest free block that holds `size` bytes."""
        index = next((index for index, (_, room) in enumerate(self._free) if room >= size), None)
        if index is None:
            raise CaptureOutOfMemory(
                f"no block of {size} bytes is free in the graph pool's {self._limit} bytes; raise the memory limit or "
                "give a shorter size list"
            )
        offset, room = self._free[index]
        if room == size:
            del self._free[index]
        else:
            self._free[index] = (offset + size, room - size)
        self.high_water = max(self.high_water, offset + size)
        return offset

    def _give_back(self, offset: int) -> None:
        """Called when the last tensor over the block is gone; joins it with free neighbours."""
        size = self.live.pop(offset).size
        at = bisect_left(self._free, (offset, size))
        if at < len(self._free) and self._free[at][0] == offset + size:
            size += self._free.pop(at)[1]
        if at > 0 and sum(self._free[at - 1]) == offset:
            offset, before = self._free.pop(at - 1)
            size += before
        insort(self._free, (offset, size))
