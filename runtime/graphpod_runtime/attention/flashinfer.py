"""Prefill by flashinfer's kernels, decode by ours: 16-bit queries on a GPU, over a cache of their type or in FP8.

No graph holds flashinfer's kernels: prefill attention is a break.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from graphpod_runtime.attention.flashinfer_prefill import FlashInferPrefill
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.base.shapes import KvScale, ModelShape
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.graphs.break_arena import Staging
from graphpod_runtime.kernels.rows.row_copies import rows_for

if TYPE_CHECKING:  # its kernels can be imported only where Triton is
    from graphpod_runtime.attention.paged_decode import PagedDecode


class _Layer(NamedTuple):
    """What differs from layer to layer: its cache, as pages and as slots, and its scales."""

    pages: tuple[Tensor, Tensor]
    slots: tuple[Tensor, Tensor]
    stored: KvScale
    softmax: float
    """Of query · stored key."""


class FlashInferAttention:
    """The Backend on flashinfer 0.6, for models whose layers attend to everything: prefill by `prefill` (fa2 or fa3),
    decode by `decode`."""

    cache: KvCache
    reads_whole_tables = False

    def __init__(
        self,
        shape: ModelShape,
        dtype: torch.dtype,
        kv_dtype: torch.dtype,
        device: torch.device,
        prefill: str,
        decode: "PagedDecode",
    ) -> None:
        self.name = f"flashinfer/{prefill}"
        self._shape, self._device = shape, device
        self._rows = rows_for(device)
        self._prefill = FlashInferPrefill(prefill, shape, dtype, kv_dtype, device)
        self._decode = decode
        self._decodes = False
        self._bases = torch.zeros(shape.layers, 2, dtype=torch.int64, device=device)
        """Where keys and values of each layer begin. Segments look there, because they are captured before the cache is
        made."""

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
        bases = [[keys.data_ptr(), values.data_ptr()] for keys, values in zip(cache.keys, cache.values, strict=True)]
        self._bases.copy_(torch.tensor(bases))
        self._decode.bind(cache)

    def reserve(self, rows: int, pages: int) -> Iterable[tuple[str, Tensor]]:
        return *self._decode.reserve(rows, pages), ("bases", self._bases)

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
        write, attend = self._rows.writer(k, v, self._slots), self._over_written(q, out)

        def run(layer: int) -> Tensor:
            own = self._layers[layer]
            write(*own.slots, own.stored)
            return attend(layer)

        return run

    def staging(self, slots: Tensor) -> Staging | None:
        from graphpod_runtime.kernels.rows.row_copies_triton import stage_and_write

        def stage(layer: int, sources: tuple[Tensor, ...], places: tuple[Tensor, ...]) -> None:
            own = self._layers[layer]
            stage_and_write(sources, places, self._bases[layer], own.pages[0].dtype, slots, own.stored)

        def attend(q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> Callable[[int], Tensor]:
            # Decode's kernel writes k and v itself: once more, where a chunk has one row.
            return self._decode.over(q, k, v, out) if self._decodes else self._over_written(q, out)

        return Staging(stage, attend)

    def _over_written(self, q: Tensor, out: Tensor) -> Callable[[int], Tensor]:
        """Prefill attention over what the cache holds."""
        attend = self._prefill.call(q, out.view(q.shape))

        def run(layer: int) -> Tensor:
            own = self._layers[layer]
            attend(*own.pages, own.softmax)
            return out if own.stored.value == 1.0 else out.mul_(own.stored.value)

        return run
