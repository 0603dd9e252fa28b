"""Rows copied in one launch: what torch would take two or three for, at every layer of every pass."""

from importlib.util import find_spec

import torch
from torch import Tensor

from graphpod_runtime.base.shapes import KvScale
from graphpod_runtime.kernels.paged_attention import write
from graphpod_runtime.kernels.rows.row_copy_contract import RowKernels, Write


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
    from graphpod_runtime.kernels.rows.row_copies_triton import TritonRows

    return TritonRows()
