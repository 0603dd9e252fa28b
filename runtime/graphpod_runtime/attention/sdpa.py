"""Attention by scaled_dot_product_attention: one op a layer, in a captured step or as a break."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.base.shapes import HOST, ModelShape
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.cache.pages import SCRATCH_PAGE
from graphpod_runtime.graphs.buffers import Buffers, Slot
from graphpod_runtime.kernels.paged_attention import paged_attention

if TYPE_CHECKING:  # its kernels can be imported only where Triton is
    from graphpod_runtime.attention.paged_decode import PagedDecode


class _Rows(NamedTuple):
    """Of Inputs, what the op reads."""

    slots: Tensor
    tables: Tensor
    lengths: Tensor
    starts: Tensor


class TorchAttention:
    """The Backend on scaled_dot_product_attention, for any model, device and dtype. With `decode`, that computes
    decode: on a GPU torch would read the whole block table of every sequence."""

    name = "torch"
    cache: KvCache
    _rows: _Rows
    """On the cache's device, but for the lengths and starts of a prefill, which its loop reads on the host."""

    def __init__(
        self, shape: ModelShape, decode: "PagedDecode | None" = None, sinks: tuple[Tensor | None, ...] = ()
    ) -> None:
        """`sinks`: of each layer, as `paged_attention` takes them; (): no layer has any."""
        self._sinks = sinks or (None,) * shape.layers
        self._shape, self._softmax_scale = shape, shape.softmax_scale
        self._decode = decode
        self._decodes = False
        self.reads_whole_tables = decode is None

    def bind(self, cache: KvCache) -> None:
        self.cache, self._device = cache, cache.device
        self._layers = [
            (keys, values, self._shape.window(layer), self._shape.cap(layer), self._sinks[layer], scales)
            for layer, (keys, values, scales) in enumerate(zip(cache.keys, cache.values, cache.scales, strict=True))
        ]
        if self._decode is not None:
            self._decode.bind(cache)

    def reserve(self, rows: int, pages: int) -> Iterable[tuple[str, Tensor]]:
        if self._decode is not None:
            return self._decode.reserve(rows, pages)
        self._static = Buffers(
            Slot("slots", rows, (), torch.int64, padding=SCRATCH_PAGE),
            Slot("tables", rows, (pages,), torch.int64, padding=SCRATCH_PAGE),
            # One token of the scratch page: attention over nothing would be NaN.
            Slot("lengths", rows, (), torch.int64, padding=1),
            Slot("starts", rows + 1, (), torch.int64, padding=None),
            device=self.cache.device,
        )
        self._static.load("starts", torch.arange(rows + 1), rows + 1)
        return self._static

    def staging(self, slots: Tensor) -> None:
        return None

    def plan(self, inputs: Inputs) -> None:
        self._decodes = self._decode is not None and inputs.one_row_each
        if self._decode is not None and self._decodes:
            self._decode.plan(inputs)
            return
        device = self._device
        for_loop = device if inputs.one_row_each else HOST
        self._rows = _Rows(
            slots=inputs.slots.to(device, non_blocking=True),
            tables=inputs.tables.to(device, non_blocking=True),
            lengths=inputs.lengths.to(for_loop, non_blocking=True),
            starts=inputs.starts.to(for_loop, non_blocking=True),
        )

    def plan_step(self, inputs: Inputs, size: int) -> None:
        if self._decode is not None:
            self._decodes = True
            self._decode.plan_step(inputs, size)
            return
        static = self._static
        for name, live in (("slots", inputs.slots), ("tables", inputs.tables), ("lengths", inputs.lengths)):
            static.load(name, live, size)
        self._rows = _Rows(
            slots=static.view("slots", size),
            tables=static.view("tables", size),
            lengths=static.view("lengths", size),
            starts=static.view("starts", size + 1),
        )

    def run(self, layer: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor | None = None) -> Tensor:
        if self._decode is not None and self._decodes:
            out = q.new_empty(q.shape[0], q.shape[1] * q.shape[2]) if out is None else out
            return self._decode.over(q, k, v, out)(layer)
        rows, (keys, values, window, cap, sinks, scales) = self._rows, self._layers[layer]
        result = torch.empty_like(q, memory_format=torch.contiguous_format) if out is None else out.view(q.shape)
        paged_attention(
            q,
            k,
            v,
            keys,
            values,
            rows.slots,
            rows.tables,
            rows.lengths,
            rows.starts,
            self._softmax_scale,
            window,
            cap,
            sinks,
            *scales,
            result,
        )
        return result.flatten(1)

    def over(self, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> Callable[[int], Tensor]:
        if self._decode is not None and self._decodes:
            return self._decode.over(q, k, v, out)
        return lambda layer: self.run(layer, q, k, v, out)
