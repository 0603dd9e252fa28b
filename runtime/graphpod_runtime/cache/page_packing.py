"""Pages of the KV cache brought together, and put back: what a copy to or from the host does on the device.

Memory is in words of one width: each of `halves` (keys and values, or one of them where they are the same) is [layers,
pages, words], `packed` is [count, layers, halves, words], and all are contiguous. `pages` [count] int64 says whose
bytes stand where in `packed`.
"""

from importlib.util import find_spec
from typing import Protocol

import torch
from torch import Tensor


class PagePacking(Protocol):
    """In line with the current stream; the host waits for nothing."""

    def gather(self, halves: tuple[Tensor, ...], pages: Tensor, packed: Tensor) -> None:
        """Of the cache to `packed`."""

    def scatter(self, packed: Tensor, pages: Tensor, halves: tuple[Tensor, ...]) -> None:
        """Back. No page may stand there more than once."""


class TorchPacking:
    """Is PagePacking, on any device."""

    def gather(self, halves: tuple[Tensor, ...], pages: Tensor, packed: Tensor) -> None:
        for number, half in enumerate(halves):
            packed[:, :, number] = half[:, pages].transpose(0, 1)

    def scatter(self, packed: Tensor, pages: Tensor, halves: tuple[Tensor, ...]) -> None:
        for number, half in enumerate(halves):
            half[:, pages] = packed[:, :, number].transpose(0, 1)


def packing_for(device: torch.device) -> PagePacking:
    """The fastest of `device`."""
    if device.type != "cuda" or find_spec("triton") is None:
        return TorchPacking()
    from graphpod_runtime.cache.page_packing_triton import TritonPacking

    return TritonPacking()
