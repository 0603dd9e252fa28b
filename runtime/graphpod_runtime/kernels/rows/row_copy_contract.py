"""The contract of copies of rows."""

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from graphpod_runtime.base.shapes import KvScale

Write = Callable[[Tensor, Tensor, KvScale], None]
"""(keys, values [all slots, kv_heads, d]) of one layer: the rows of a pass go to their slots, by the layer's scales."""


class RowKernels(Protocol):
    """The copies of an engine's passes. Heads of a row of a source may lie anywhere; they are fastest together."""

    def stage(self, sources: tuple[Tensor, ...], targets: tuple[Tensor, ...]) -> None:
        """Three sources [rows, heads, d] into three contiguous targets of their shapes, the last two of one width."""

    def writer(self, k: Tensor, v: Tensor, slots: Tensor) -> Write:
        """Row i of k and v [rows, kv_heads, d] to slot slots[i], in any number of layers of one shape."""
