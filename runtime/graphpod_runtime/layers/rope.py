"""Rotary position embedding, halves convention (first half of a head pairs with its second half)."""

import torch
from torch import Tensor


def rope_tables(length: int, head_dim: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines of every position, each [length, 1, head_dim].

    The sines of the first half carry the minus sign of the rotation, so that `apply_rope` needs no negation:
    rotate(x) = [-x2, x1] and x·cos + rotate(x)·sin = x·cos + [x2, x1]·[-sin, sin].
    """
    # 1 / θ^x rather than θ^-x: transformers rounds so, and one ulp of a frequency is 1e-4 of a cosine at position 8192.
    frequencies = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angles = torch.arange(length, dtype=torch.float32)[:, None] * frequencies
    cosines = torch.cat((angles.cos(), angles.cos()), dim=-1)
    sines = torch.cat((-angles.sin(), angles.sin()), dim=-1)
    return cosines.to(dtype)[:, None], sines.to(dtype)[:, None]


def apply_rope(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """`x` [tokens, heads, head_dim] rotated by tables [tokens, 1, head_dim]."""
    return torch.addcmul(x * cosines, x.roll(x.shape[-1] // 2, -1), sines)
