"""Prefill by flashinfer's kernels, decode by ours: 16-bit queries on a GPU, over a cache of their type or in FP8.

No graph holds flashinfer's kernels: prefill attention is a break.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from graphpod_runtime.attention.flashinfer_prefill import FlashInferPrefill
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.base.shapes import KvScale, ModelShape
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.kernels.row_copies import rows_for


class _Layer(NamedTuple):
    """What differs from layer to layer: its cache, as pages and as slots, and its scales."""

    pages: tuple[Tensor, Tensor]
    slots: tuple[Tensor, Tensor]
    stored: KvScale
    softmax: float
    """Of query · stored key."""


class FlashInferAttention:
    """The Backend on flashinfer 0.6, for models whose layers attend to everything: prefill by `prefill` (fa2 or fa3),
    decode by PagedDecode."""

    cache: KvCache
    reads_whole_tables = False

    def __init__(
        self, shape: ModelShape, dtype: torch.dtype, kv_dtype: torch.dtype, device: torch.device, prefill: str
    ) -> None:
        from graphpod_runtime.attention.paged_decode import PagedDecode

        self.name = f"flashinfer/{prefill}"
        self._shape, self._device = shape, device
        self._rows = rows_for(device)
        self._prefill = FlashInferPrefill(prefill, shape, dtype, kv_dtype, device)
        self._decode = PagedDecode(shape, dtype, device)
        self._decodes = False

    def bind(self, cache: KvCache) -> None:
        self.cache = cache
        self._layers = [
            _Layer(
                pages=(keys, values),
                slots=(keys.flatten(0, 1), values.flatten(0, 1)),
                stored=scale,
                softmax=self._shape.softmax_scale * scale.key,
            )
            for keys, values, scale in zip(cache.keys, cache.values, cache.scales, strict=True)
        ]
        self._decode.bind(cache)

    def reserve(self, rows: int, pages: int) -> Iterable[tuple[str, Tensor]]:
        return self._decode.reserve(rows, pages)

    def plan(self, inputs: Inputs) -> None:
        self._decodes = inputs.one_row_each
        if self._decodes:
            self._decode.plan(inputs)
            return
        self._slots = inputs.slots.to(self._device, non_blocking=True)
        self._prefill.plan(inputs, self.cache.page_size)

    def plan_step(self, inputs: Inputs, size: int) -> None:
        self._decodes = True
        self._decode.plan_step(inputs, size)

    def run(self, layer: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor | None = None) -> Tensor:
        if out is None:
            out = q.new_empty(q.shape[0], q.shape[1] * q.shape[2])
        return self.over(q, k, v, out)(layer)

    def over(self, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> Callable[[int], Tensor]:
        if self._decodes:
            return self._decode.over(q, k, v, out)
        write = self._rows.writer(k, v, self._slots)
        attend = self._prefill.call(q, out.view(q.shape))

        def run(layer: int) -> Tensor:
            own = self._layers[layer]
            write(*own.slots, own.stored)
            attend(*own.pages, own.softmax)
            return out if own.stored.value == 1.0 else out.mul_(own.stored.value)

        return run
