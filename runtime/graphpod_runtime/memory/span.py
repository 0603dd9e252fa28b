"""Addresses whose memory can go and come back.

Graphs freeze addresses. So what leaves the device keeps its range of them: only the memory behind it goes.
"""

from typing import Protocol

from torch import Tensor

ALIGNMENT = 512
"""Bytes: where tensors in a span begin, as those of torch's allocator do."""


class Span(Protocol):
    """A range of `size` bytes of addresses on one device. It has all its memory, zeros, unless `grow` is to give it."""

    size: int

    def grow(self, size: int) -> None:
        """The first `size` bytes have memory from now on. torch.OutOfMemoryError where there is none."""

    def tensor(self, first: int, size: int) -> Tensor:
        """Bytes [first, first + size), which have memory: uint8, a storage of their own. The span lives as long."""

    def release(self) -> None:
        """Gives the memory back; contents are lost. Until `restore` nothing may touch the addresses."""

    def restore(self) -> None:
        """Zeros, at the same addresses. torch.OutOfMemoryError, and nothing taken, where there is no memory."""

    def in_use(self) -> int:
        """Bytes of its device that are in use, by whomever can be seen: what a release gave is the difference."""


def aligned(size: int) -> int:
    """The bytes that a tensor of `size` takes in a span."""
    return -(-size // ALIGNMENT) * ALIGNMENT
