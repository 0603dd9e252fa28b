"""Rotary position embedding, halves convention (first half of a head pairs with its second half)."""

import torch
import torch.nn.functional as functional
from torch import Tensor

from graphpod_runtime.base.shapes import Stretch


def rope_tables(
    length: int, head_dim: int, theta: float, dtype: torch.dtype, stretch: Stretch | None = None, rotated: int = 0
) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines of every position, each [length, 1, head_dim].

    The sines of the first half carry the minus sign of the rotation, so that `apply_rope` needs no negation:
    rotate(x) = [-x2, x1] and x·cos + rotate(x)·sin = x·cos + [x2, x1]·[-sin, sin]. If `rotated` elements of a head are
    fewer than all, the pairs that remain do not turn.
    """
    width = rotated or head_dim
    steps = theta ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
    # 1 / θ^x rather than θ^-x: transformers rounds so.
    frequencies = 1.0 / steps if stretch is None else stretch.frequencies(steps, theta)
    amplitude = 1.0 if stretch is None else stretch.amplitude
    angles = torch.arange(length, dtype=torch.float32)[:, None] * frequencies
    still = (head_dim - width) // 2
    cosines = functional.pad(angles.cos() * amplitude, (0, still), value=1.0)
    sines = functional.pad(angles.sin() * amplitude, (0, still))
    return (
        torch.cat((cosines, cosines), dim=-1).to(dtype)[:, None],
        torch.cat((-sines, sines), dim=-1).to(dtype)[:, None],
    )


def apply_rope(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """`x` [tokens, heads, head_dim] rotated by tables [tokens, 1, head_dim]."""
    return torch.addcmul(x * cosines, x.roll(x.shape[-1] // 2, -1), sines)
