"""Paged attention of rows that do not see every token in front of them, as drafts of a tree: one opaque op, for the
reasons of `paged_attention`.
"""

import torch
import torch.nn.functional as functional
from torch import Tensor

from graphpod_runtime.kernels.capped_attention import capped_attention
from graphpod_runtime.kernels.paged_attention import read, write

HIDEABLE = 63
"""Tokens in front of a row that it can be kept from seeing."""

torch.library.define(
    "graphpod::tree_attention",
    "(Tensor q, Tensor k, Tensor v, Tensor(a!) keys, Tensor(b!) values, Tensor slots, Tensor tables, Tensor lengths, "
    "Tensor hidden, float scale, int? window, float? cap, Tensor? sinks, float key_scale, float value_scale, "
    "Tensor(c!) out) -> ()",
)


tree_attention = torch.ops.graphpod.tree_attention
"""As `_tree_attention`."""


@torch.library.impl("graphpod::tree_attention", ("cpu", "cuda"))
def _tree_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    values: Tensor,
    slots: Tensor,
    tables: Tensor,
    lengths: Tensor,
    hidden: Tensor,
    scale: float,
    window: int | None,
    cap: float | None,
    sinks: Tensor | None,
    key_scale: float,
    value_scale: float,
    out: Tensor,
) -> None:
    """One layer of a decode step, one query row a sequence: as `paged_attention`, and `hidden` as Inputs has it."""
    write(keys.flatten(0, 1), slots, k, key_scale)
    write(values.flatten(0, 1), slots, v, value_scale)
    rows, heads, width = q.shape
    kv_heads, page_size = keys.shape[2], keys.shape[1]
    # A read on the host would break a capture, so a GPU attends over the whole table and masks the rest.
    longest = tables.shape[1] * page_size if q.is_cuda else int(lengths.max())
    used = tables[:, : -(-longest // page_size)].flatten()
    mask = seen(lengths, hidden, longest, window)[:, None, None]
    # NaN of a wrong draft must not reach other rows, where its weight is 0.
    own_keys, own_values = (
        read(cache, used, q.dtype)
        .view(rows, -1, kv_heads, width)[:, :longest]
        .transpose(1, 2)
        .masked_fill(mask.mT.logical_not(), 0)
        for cache in (keys, values)
    )
    grouped, scale = q.view(rows, kv_heads, heads // kv_heads, width), scale * key_scale
    if cap is None and sinks is None:
        result = functional.scaled_dot_product_attention(grouped, own_keys, own_values, attn_mask=mask, scale=scale)
    else:
        drawn = None if sinks is None else sinks.view(1, kv_heads, -1, 1)
        result = capped_attention(grouped, own_keys, own_values, mask, scale, cap, drawn)
    out.copy_(result.reshape(rows, heads, width))
    if value_scale != 1.0:
        out.mul_(value_scale)


def seen(lengths: Tensor, hidden: Tensor, longest: int, window: int | None) -> Tensor:
    """bool [rows, longest]: whether a row of `lengths` [rows] tokens sees each of its first `longest` ones. A `window`
    counts the tokens that it sees, its own included: those are the ones that are in front of it in its text."""
    behind = lengths[:, None] - 1 - torch.arange(longest, device=lengths.device)
    hides = (hidden[:, None] >> behind.clamp(0, HIDEABLE - 1)) & 1 == 1
    shown = (behind >= 0) & ~(hides & (behind < HIDEABLE))
    if window is not None:
        shown &= shown.flip(1).cumsum(1).flip(1) <= window
    return shown
