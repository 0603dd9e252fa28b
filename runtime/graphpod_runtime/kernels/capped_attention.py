"""Attention whose scores do not go to the softmax as they are."""

import torch
from torch import Tensor


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
