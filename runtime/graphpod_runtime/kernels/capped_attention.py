"""Attention whose scores do not go to the softmax as they are."""

import torch
from torch import Tensor

SCORE_BYTES = 64 << 20
"""Of scores in single precision that a prefill pass has at one time; it keeps some copies of them."""


def capped_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    scale: float,
    cap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """Attention whose scores are capped or have sinks, in the order of operations of transformers: the softmax is in
    float32. Shapes broadcast: q [.., rows, d], k and v [.., keys, d], mask [.., rows, keys], sinks [.., rows or 1, 1].
    """
    scores = q @ k.mT * scale
    if cap is not None:
        scores = torch.tanh(scores / cap) * cap
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), float("-inf"))
    if sinks is not None:
        scores = torch.cat((scores, sinks.to(scores.dtype).expand(*scores.shape[:-1], 1)), dim=-1)
    weights = scores.softmax(-1, dtype=torch.float32).to(q.dtype)
    return weights[..., : k.shape[-2]] @ v


def capped_prefill(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    first: int,
    past: int,
    scale: float,
    window: int | None,
    cap: float | None,
    sinks: Tensor | None,
    out: Tensor,
) -> None:
    """The rows of one sequence, the first at position `past`, over its keys and values from position `first` on. Some
    rows at a time: a chunk's scores over a long past would fill the device."""
    (rows, heads, width), (count, kv_heads, _) = q.shape, keys.shape
    own_keys, own_values = (own.transpose(0, 1)[:, None] for own in (keys, values))
    drawn = None if sinks is None else sinks.view(kv_heads, -1, 1, 1)
    seen = torch.arange(first, first + count, device=q.device)
    block = max(1, SCORE_BYTES // (4 * heads * count))
    for begin in range(0, rows, block):
        part = q[begin : begin + block]
        at = torch.arange(past + begin, past + begin + len(part), device=q.device)[:, None]
        mask = seen <= at
        if window is not None:
            mask &= seen > at - window
        grouped = part.transpose(0, 1).reshape(kv_heads, -1, len(part), width)
        result = capped_attention(grouped, own_keys, own_values, mask, scale, cap, drawn)
        out[begin : begin + block].copy_(result.reshape(heads, len(part), width).transpose(0, 1))
