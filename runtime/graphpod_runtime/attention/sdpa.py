"""Paged attention in plain torch: one opaque op that writes keys and values, then attends.

It is one custom op on purpose. The recorder records it as one call, so block tables, lengths and slots are read
from their buffers whenever it runs; a Python loop over lengths in captured code would freeze the lengths of capture.

It is defined by its schema: the decorator `torch.library.custom_op` imports torch's compiler at the first call
(3 s, 100 MB) and costs 15 µs a call, ten times this.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as functional
from torch import Tensor

from graphpod_runtime.attention.base import Metadata
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.cache.pages import SCRATCH_PAGE
from graphpod_runtime.graphs.buffers import Buffers, Slot
from graphpod_runtime.models.base import HOST

torch.library.define(
    "graphpod::paged_attention",
    "(Tensor q, Tensor k, Tensor v, Tensor(a!) keys, Tensor(b!) values, Tensor slots, Tensor tables, Tensor lengths, "
    "Tensor starts, Tensor(c!) out) -> ()",
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
    out: Tensor,
) -> None:
    """One layer: keys and values are [pages, page_size, kv_heads, d], out [tokens, heads, d]; the rest as Metadata."""
    keys.flatten(0, 1).index_copy_(0, slots, k)
    values.flatten(0, 1).index_copy_(0, slots, v)
    if lengths.shape[0] == q.shape[0]:
        _decode(q, keys, values, tables, lengths, out)
    else:
        _prefill(q, k, v, keys, values, tables, lengths, starts, out)


def _decode(q: Tensor, keys: Tensor, values: Tensor, tables: Tensor, lengths: Tensor, out: Tensor) -> None:
    """One query row per sequence, all in one call padded to the longest.

    The heads of one key head are laid along the query axis, so keys are not repeated for grouped queries.
    """
    rows, heads, width = q.shape
    kv_heads, page_size = keys.shape[2], keys.shape[1]
    # A read on the host would break a capture, so a GPU attends over the whole table and masks the rest.
    longest = tables.shape[1] * page_size if q.is_cuda else int(lengths.max())
    used = tables[:, : -(-longest // page_size)]
    own_keys, own_values = (
        cache.index_select(0, used.flatten()).view(rows, -1, kv_heads, width)[:, :longest].transpose(1, 2)
        for cache in (keys, values)
    )
    mask = None
    if rows > 1 or q.is_cuda:
        mask = (torch.arange(longest, device=q.device) < lengths[:, None])[:, None, None]
    result = functional.scaled_dot_product_attention(
        q.view(rows, kv_heads, heads // kv_heads, width), own_keys, own_values, attn_mask=mask
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
    out: Tensor,
) -> None:
    """Sequence by sequence: causal over its own rows, plus the pages of what it computed before."""
    page_size = keys.shape[1]
    bounds, contexts = starts.tolist(), lengths.tolist()
    for index, context in enumerate(contexts):
        rows = slice(bounds[index], bounds[index + 1])
        count = rows.stop - rows.start
        own_q = q[rows].transpose(0, 1)[None]
        if context == count:
            own_k, own_v, mask = k[rows], v[rows], None
        else:
            used = tables[index, : -(-context // page_size)]
            own_k = keys.index_select(0, used).flatten(0, 1)[:context]
            own_v = values.index_select(0, used).flatten(0, 1)[:context]
            mask = torch.ones(count, context, dtype=torch.bool, device=q.device).tril(context - count)
        result = functional.scaled_dot_product_attention(
            own_q,
            own_k.transpose(0, 1)[None],
            own_v.transpose(0, 1)[None],
            attn_mask=mask,
            is_causal=mask is None,
            enable_gqa=True,
        )
        out[rows].copy_(result[0].transpose(0, 1))


class TorchAttention:
    """The Backend on scaled_dot_product_attention, for any device and dtype."""

    cache: KvCache
    _rows: Metadata
    """On the cache's device, but for the lengths and starts of a prefill, which its loop reads on the host."""

    def bind(self, cache: KvCache) -> None:
        self.cache = cache

    def reserve(self, rows: int, pages: int) -> Buffers:
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
        device = self.cache.device
        for_loop = device if metadata.one_row_each else HOST
        self._rows = Metadata(
            slots=metadata.slots.to(device),
            tables=metadata.tables.to(device),
            lengths=metadata.lengths.to(for_loop),
            starts=metadata.starts.to(for_loop),
        )

    def plan_step(self, metadata: Metadata, size: int) -> None:
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
            result,
        )
        return result.flatten(1)

    def over(self, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> Callable[[int], Tensor]:
        return lambda layer: self.run(layer, q, k, v, out)
