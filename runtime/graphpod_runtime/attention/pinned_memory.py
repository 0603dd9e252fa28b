"""Pinned host memory for copies that the device makes later."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class PinnedRing:
    """Buffers lent in turn, each only after the copies out of it have happened.

    A host that runs ahead of the device would otherwise write the next plan over one that has not been copied yet, and
    kernels would run by a mixture of both.
    """

    def __init__(self, size: int, buffers: int = 2) -> None:
        """`size` bytes each."""
        self._buffers = [torch.empty(size, dtype=torch.uint8, pin_memory=True) for _ in range(buffers)]
        self._copied = [torch.cuda.Event() for _ in range(buffers)]
        self._next = 0

    @contextmanager
    def lend(self) -> Iterator[Tensor]:
        """A buffer to write; copies out of it are put on the current stream before this ends."""
        index, self._next = self._next, (self._next + 1) % len(self._buffers)
        self._copied[index].synchronize()
        yield self._buffers[index]
        self._copied[index].record()
