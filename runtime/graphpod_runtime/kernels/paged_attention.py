"""Paged attention in plain torch: one opaque op that writes keys and values, then attends.

It is one custom op on purpose. The recorder records it as one call, so block tables, lengths and slots are read
from their buffers whenever it runs; a Python loop over lengths in captured code would freeze the lengths of capture.

It is defined by its schema: the decorator `torch.library.custom_op` imports torch's compiler at the first call
(3 s, 100 MB) and costs 15 µs a call, ten times this.
"""

import torch
import torch.nn.functional as functional
from torch import Tensor

from graphpod_runtime.cache.cells import bits, stored
from graphpod_runtime.kernels.capped_attention import capped_attention, capped_prefill

torch.library.define(
    "graphpod::paged_attention",
    "(Tensor q, Tensor k, Tensor v, Tensor(a!) keys, Tensor(b!) values, Tensor slots, Tensor tables, Tensor lengths, "
    "Tensor starts, float scale, int? window, float? cap, Tensor? sinks, float key_scale, float value_scale, "
    "Tensor(c!) out) -> ()",
)


paged_attention = torch.ops.graphpod.paged_attention
"""As `_paged_attention`."""


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
    cap: float | None,
    sinks: Tensor | None,
    key_scale: float,
    value_scale: float,
    out: Tensor,
) -> None:
    """One layer: keys and values are [pages, page_size, kv_heads, d], out [tokens, heads, d]; the rest as Inputs.

    A `cap` c makes a score s c · tanh(s / c). `sinks` [heads] are scores of a key without a value, one for each head.
    """
    write(keys.flatten(0, 1), slots, k, key_scale)
    write(values.flatten(0, 1), slots, v, value_scale)
    scale *= key_scale
    if lengths.shape[0] == q.shape[0]:
        _decode(q, keys, values, tables, lengths, scale, window, cap, sinks, out)
    else:
        _prefill(q, k, v, keys, values, tables, lengths, starts, scale, window, cap, sinks, out)
    if value_scale != 1.0:
        out.mul_(value_scale)


def write(cells: Tensor, slots: Tensor, rows: Tensor, scale: float) -> None:
    """`rows` [n, kv_heads, d] into `slots` [n] of one layer's keys or values [all slots, kv_heads, d]."""
    if cells.dtype == rows.dtype:
        cells.index_copy_(0, slots, rows)
    else:
        bits(cells).index_copy_(0, slots, bits(stored(rows, scale, cells.dtype)))


def read(pages: Tensor, used: Tensor, dtype: torch.dtype) -> Tensor:
    """Pages `used` [n] of one layer's keys or values, as `dtype` and not yet multiplied by their scale."""
    if pages.dtype == dtype:
        return pages.index_select(0, used)
    return bits(pages).index_select(0, used).view(pages.dtype).to(dtype)


def _decode(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    tables: Tensor,
    lengths: Tensor,
    scale: float,
    window: int | None,
    cap: float | None,
    sinks: Tensor | None,
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
        if q.is_cuda or bool(((tables[1:, 0] == tables[:-1, 0]) & (lengths[1:] > 1)).any()):
            # Rows of one sequence: NaN of a wrong draft must not reach those in front, where its weight is 0.
            hidden = mask.mT.logical_not()
            own_keys, own_values = own_keys.masked_fill(hidden, 0), own_values.masked_fill(hidden, 0)
    grouped = q.view(rows, kv_heads, heads // kv_heads, width)
    if cap is None and sinks is None:
        result = functional.scaled_dot_product_attention(grouped, own_keys, own_values, attn_mask=mask, scale=scale)
    else:
        drawn = None if sinks is None else sinks.view(1, kv_heads, -1, 1)
        result = capped_attention(grouped, own_keys, own_values, mask, scale, cap, drawn)
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
    cap: float | None,
    sinks: Tensor | None,
    out: Tensor,
) -> None:
    """Sequence by sequence: causal over its own rows, plus the pages of what it computed before.

    A cache of another type is read back for a sequence's own rows, too: what it answers must not depend on how its
    prompt was cut.
    """
    page_size = keys.shape[1]
    bounds, contexts = starts.tolist(), lengths.tolist()
    for index, context in enumerate(contexts):
        rows = slice(bounds[index], bounds[index + 1])
        past = context - (rows.stop - rows.start)
        if past == 0 and keys.dtype == k.dtype:
            first, own_k, own_v = 0, k[rows], v[rows]
        else:
            page = 0 if window is None else max(0, past + 1 - window) // page_size
            used = tables[index, page : -(-context // page_size)]
            first = page * page_size
            own_k, own_v = (read(cache, used, q.dtype).flatten(0, 1)[: context - first] for cache in (keys, values))
        if cap is not None or sinks is not None:
            capped_prefill(q[rows], own_k, own_v, first, past, scale, window, cap, sinks, out[rows])
            continue
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
