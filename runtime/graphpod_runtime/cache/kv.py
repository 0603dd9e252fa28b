"""The paged KV cache in memory."""

import math
import mmap
from dataclasses import dataclass

import torch
from torch import Tensor

from graphpod_runtime.models.base import HOST, ModelShape


@dataclass(frozen=True, slots=True)
class KvCache:
    """Keys and values, each [layers, pages, page_size, kv_heads, head_dim]; page 0 is scratch."""

    keys: Tensor
    values: Tensor

    @classmethod
    def allocate(
        cls, shape: ModelShape, pages: int, page_size: int, dtype: torch.dtype, device: torch.device = HOST
    ) -> "KvCache":
        """A zeroed cache (finite: attention gives NaN for NaN even at masked positions).

        On the host it reserves addresses; the system gives a page its memory when it is first written.
        """
        size = (shape.layers, pages, page_size, shape.kv_heads, shape.head_dim)
        if device != HOST:
            return cls(*(torch.zeros(size, dtype=dtype, device=device) for _ in range(2)))
        return cls(_reserved(size, dtype), _reserved(size, dtype))

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.keys.device

    @property
    def pages(self) -> int:
        """All pages, scratch included."""
        return self.keys.shape[1]

    @property
    def page_size(self) -> int:
        """Tokens in one page."""
        return self.keys.shape[2]

    def fill(self, pages: Tensor, value: float) -> None:
        """Sets `pages` [n] of every layer to `value`."""
        self.keys.index_fill_(1, pages, value)
        self.values.index_fill_(1, pages, value)

    def clear(self) -> None:
        """Zeroes every page."""
        self.keys.zero_()
        self.values.zero_()


def _reserved(size: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zeros of `size`, untouched: torch.zeros would write them all."""
    memory = mmap.mmap(-1, math.prod(size) * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(memory, dtype=dtype).view(size)


def page_bytes(shape: ModelShape, page_size: int, dtype: torch.dtype) -> int:
    """Bytes of one page: keys and values of every layer."""
    return 2 * shape.layers * page_size * shape.kv_heads * shape.head_dim * dtype.itemsize
