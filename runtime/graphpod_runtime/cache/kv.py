"""The paged KV cache in memory."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphpod_runtime.models.base import ModelShape


@dataclass(frozen=True, slots=True)
class KvCache:
    """Keys and values, each [layers, pages, page_size, kv_heads, head_dim]; page 0 is scratch."""

    keys: Tensor
    values: Tensor

    @classmethod
    def allocate(cls, shape: ModelShape, pages: int, page_size: int, dtype: torch.dtype) -> "KvCache":
        """A zeroed cache (finite: attention gives NaN for NaN even at masked positions)."""
        size = (shape.layers, pages, page_size, shape.kv_heads, shape.head_dim)
        return cls(torch.zeros(size, dtype=dtype), torch.zeros(size, dtype=dtype))

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


def page_bytes(shape: ModelShape, page_size: int, dtype: torch.dtype) -> int:
    """Bytes of one page: keys and values of every layer."""
    return 2 * shape.layers * page_size * shape.kv_heads * shape.head_dim * dtype.itemsize
