"""Rows copied in one launch: what torch would take two or three for, at every layer of every pass."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Protocol

import torch
from torch import Tensor

from graphpod_runtime.cache.kv import write
from graphpod_runtime.models.base import KvScale

Write = Callable[[Tensor, Tensor, KvScale], None]
"""(keys, values [all slots, kv_heads, d]) of one layer: the rows of a pass go to their slots, by the layer's scales."""


class RowKernels(Protocol):
    """The copies of an engine's passes. Heads of a row of a source may lie anywhere; they are fastest together."""

    def stage(self, sources: tuple[Tensor, ...], targets: tuple[Tensor, ...]) -> None:
        """Three sources [rows, heads, d] into three contiguous targets of their shapes, the last two of one width."""

    def writer(self, k: Tensor, v: Tensor, slots: Tensor) -> Write:
        """Row i of k and v [rows, kv_heads, d] to slot slots[i], in any number of layers of one shape."""


class TorchRows:
    """RowKernels for any device and dtype."""

    def stage(self, sources: tuple[Tensor, ...], targets: tuple[Tensor, ...]) -> None:
        for source, target in zip(sources, targets, strict=True):
            target.copy_(source)

    def writer(self, k: Tensor, v: Tensor, slots: Tensor) -> Write:
        def write_layer(keys: Tensor, values: Tensor, scale: KvScale) -> None:
            write(keys, slots, k, scale.key)
            write(values, slots, v, scale.value)

        return write_layer


def rows_for(device: torch.device) -> RowKernels:
    """The fastest RowKernels of `device`."""
    if device.type != "cuda" or find_spec("triton") is None:
        return TorchRows()
    from graphpod_runtime.kernels.rows_triton import TritonRows

    return TritonRows()
