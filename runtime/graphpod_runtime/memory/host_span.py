"""A span in the memory of the host: anonymous pages, which the system gives when they are first written."""

import mmap
from pathlib import Path

import torch
from torch import Tensor


class HostSpan:
    """Is a Span."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._pages = mmap.mmap(-1, max(1, size), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def grow(self, size: int) -> None:
        """Nothing to do: see above."""

    def tensor(self, first: int, size: int) -> Tensor:
        if size == 0:
            return torch.empty(0, dtype=torch.uint8)
        return torch.frombuffer(self._pages, dtype=torch.uint8, count=size, offset=first)

    def release(self) -> None:
        self._pages.madvise(mmap.MADV_DONTNEED)

    def restore(self) -> None:
        """Nothing to do: pages that were given back read as zeros."""

    def in_use(self) -> int:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * mmap.PAGESIZE
