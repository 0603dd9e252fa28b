"""Paged attention in plain torch: one opaque op that writes keys and values, then attends.

It is one custom op on purpose. The recorder records it as one call, so block tables, lengths and slots are read
from their buffers whenever it runs; a Python loop over lengths in captured code would freeze the lengths of capture.

It is defined by its schema: the decorator `torch.library.custom_op` imports torch's compiler at the first call
(3 s, 100 MB) and costs 15 µs a call, ten times this.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as functional
from torch import Tensor

from graphpod_runtime.attention.base import Metadata
from graphpod_runtime.base.shapes import HOST, ModelShape
from graphpod_runtime.cache.kv import KvCache, quantises, read, write
from graphpod_runtime.cache.pages import SCRATCH_PAGE
from graphpod_runtime.graphs.buffers import Buffers, Slot

if TYPE_CHECKING:  # its kernels can be imported only where Triton is
    from graphpod_runtime.attention.paged_decode import PagedDecode

torch.library.define(
    "graphpod::paged_attention",
    "(Tensor q, Tensor k, Tensor v, Tensor(a!) keys, Tensor(b!) values, Tensor slots, Tensor tables, Tensor lengths, "
    "Tensor starts, float scale, int? window, float key_scale, float value_scale, Tensor(c!) out) -> ()",
)


@torch.library.impl("graphpod::paged_attention", ("cpu", "cuda"))
def _paged_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    values: Tensor,
    slots: Tensor,
    tables: Tensor,
    lengths: Tensor,
    starts: Tensor,
    scale: float,
    window: int | None,
    key_scale: float,
    value_scale: float,
    out: Tensor,
) -> None:
    """One layer: keys and values are [pages, page_size, kv_heads, d], out [tokens, heads, d]; the rest as Metadata."""
    write(keys.flatten(0, 1), slots, k, key_scale)
    write(values.flatten(0, 1), slots, v, value_scale)
    scale *= key_scale
    if lengths.shape[0] == q.shape[0]:
        _decode(q, keys, values, tables, lengths, scale, window, out)
    else:
        _prefill(q, k, v, keys, values, tables, lengths, starts, scale, window, out)
    if value_scale != 1.0:
        out.mul_(value_scale)


def _decode(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    tables: Tensor,
    lengths: Tensor,
    scale: float,
    window: int | None,
    out: Tensor,
) -> None:
    """One query row per sequence, all in one call padded to the longest, or to the window.

    The heads of one key head are laid along the query axis, so keys are not repeated for grouped queries.
    """
    rows, heads, width = q.shape
    kv_heads, page_size = keys.shape[2], keys.shape[1]
    # A read on the host would break a capture, so a GPU attends over the whole table and masks the rest.
    longest = tables.shape[1] * page_size if q.is_cuda else int(lengths.max())
    pages = -(-longest // page_size)
    positions = torch.arange(longest, device=q.device)[None]
    if window is not None and (least := -(-window // page_size) + 1) < pages:
        # The pages in which the window lies: as many for every sequence, from another one on.
        first = (lengths - window).clamp(min=0) // page_size
        columns = first[:, None] + torch.arange(least, device=q.device)
        used = tables.gather(1, columns.clamp(max=tables.shape[1] - 1))
        longest = least * page_size
        positions = positions[:, :longest] + first[:, None] * page_size
    else:
        used = tables[:, :pages]
    own_keys, own_values = (
        read(cache, used.flatten(), q.dtype).view(rows, -1, kv_heads, width)[:, :longest].transpose(1, 2)
        for cache in (keys, values)
    )
    mask = None
    if rows > 1 or window is not None or q.is_cuda:
        mask = positions < lengths[:, None]
        if window is not None:
            mask &= positions >= lengths[:, None] - window
        mask = mask[:, None, None]
    result = functional.scaled_dot_product_attention(
        q.view(rows, kv_heads, heads // kv_heads, width), own_keys, own_values, attn_mask=mask, scale=scale
    )
    out.copy_(result.reshape(rows, heads, width))


def _prefill(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    values: Tensor,
    tables: Tensor,
    lengths: Tensor,
    starts: Tensor,
    scale: float,
    window: int | None,
    out: Tensor,
) -> None:
    """Sequence by sequence: causal over its own rows, plus the pages of what it computed before.

    An FP8 cache is read back for a sequence's own rows, too: what it answers must not depend on how its prompt was cut.
    """
    page_size = keys.shape[1]
    bounds, contexts = starts.tolist(), lengths.tolist()
    for index, context in enumerate(contexts):
        rows = slice(bounds[index], bounds[index + 1])
        past = context - (rows.stop - rows.start)
        if past == 0 and not quantises(keys.dtype):
            first, own_k, own_v = 0, k[rows], v[rows]
        else:
            page = 0 if window is None else max(0, past + 1 - window) // page_size
            used = tables[index, page : -(-context // page_size)]
            first = page * page_size
            own_k, own_v = (read(cache, used, q.dtype).flatten(0, 1)[: context - first] for cache in (keys, values))
        mask = None
        if past > 0 or (window is not None and window < context):
            at = torch.arange(past, context, device=q.device)[:, None]
            seen = torch.arange(first, context, device=q.device)
            mask = seen <= at
            if window is not None:
                mask &= seen > at - window
        result = functional.scaled_dot_product_attention(
            q[rows].transpose(0, 1)[None],
            own_k.transpose(0, 1)[None],
            own_v.transpose(0, 1)[None],
            attn_mask=mask,
            is_causal=mask is None,
            scale=scale,
            enable_gqa=True,
        )
        out[rows].copy_(result[0].transpose(0, 1))


class TorchAttention:
    """The Backend on scaled_dot_product_attention, for any model, device and dtype. With `decode`, that computes
    decode: on a GPU torch would read the whole block table of every sequence."""

    name = "torch"
    cache: KvCache
    _rows: Metadata
    """On the cache's device, but for the lengths and starts of a prefill, which its loop reads on the host."""

    def __init__(self, shape: ModelShape, decode: "PagedDecode | None" = None) -> None:
        self._shape = shape
        self._decode = decode
        self._decodes = False
        self.reads_whole_tables = decode is None

    def bind(self, cache: KvCache) -> None:
        self.cache = cache
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

    def plan(self, metadata: Metadata) -> None:
        self._decodes = self._decode is not None and metadata.one_row_each
        if self._decode is not None and self._decodes:
            self._decode.plan(metadata)
            return
        device = self.cache.device
        for_loop = device if metadata.one_row_each else HOST
        self._rows = Metadata(
            slots=metadata.slots.to(device, non_blocking=True),
            tables=metadata.tables.to(device, non_blocking=True),
            lengths=metadata.lengths.to(for_loop, non_blocking=True),
            starts=metadata.starts.to(for_loop, non_blocking=True),
        )

    def plan_step(self, metadata: Metadata, size: int) -> None:
        if self._decode is not None:
            self._decodes = True
            self._decode.plan_step(metadata, size)
            return
        static = self._static
        for name, live in (("slots", metadata.slots), ("tables", metadata.tables), ("lengths", metadata.lengths)):
            static.load(name, live, size)
        self._rows = Metadata(
            slots=static.view("slots", size),
            tables=static.view("tables", size),
            lengths=static.view("lengths", size),
            starts=static.view("starts", size + 1),
        )

    def run(self, layer: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor | None = None) -> Tensor:
        if self._decode is not None and self._decodes:
            out = q.new_empty(q.shape[0], q.shape[1] * q.shape[2]) if out is None else out
            return self._decode.over(q, k, v, out)(layer)
        rows = self._rows
        result = torch.empty_like(q, memory_format=torch.contiguous_format) if out is None else out.view(q.shape)
        torch.ops.graphpod.paged_attention(
            q,
            k,
            v,
            self.cache.keys[layer],
            self.cache.values[layer],
            rows.slots,
            rows.tables,
            rows.lengths,
            rows.starts,
            self._shape.softmax_scale,
            self._shape.window(layer),
            *self.cache.scales[layer],
            result,
        )
        return result.flatten(1)

    def over(self, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> Callable[[int], Tensor]:
        if self._decode is not None and self._decodes:
            return self._decode.over(q, k, v, out)
        return lambda layer: self.run(layer, q, k, v, out)
