"""Rotary position embedding, halves convention (first half of a head pairs with its second half).

A model may turn slower than it was pretrained to, so as to reach positions beyond: a `Stretch`. Each is the formula of
transformers (modeling_rope_utils.py), in its order of operations: one ulp of a frequency is 1e-4 of a cosine at
position 8192.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from graphpod_runtime.base.shapes import Stretch


@dataclass(frozen=True, slots=True)
class LinearStretch:
    """Every pair turns `factor` times slower."""

    factor: float
    amplitude: float = 1.0

    def frequencies(self, steps: Tensor, theta: float) -> Tensor:
        return 1.0 / steps / self.factor


@dataclass(frozen=True, slots=True)
class Llama3Stretch:
    """Pairs whose wavelength exceeds original / low turn `factor` times slower, those below original / high as ever,
    those between in between. `original` is the positions of pretraining.
    """

    factor: float
    low: float
    high: float
    original: int
    amplitude: float = 1.0

    def frequencies(self, steps: Tensor, theta: float) -> Tensor:
        plain = 1.0 / steps
        wavelengths = 2 * math.pi / plain
        slowed = torch.where(wavelengths > self.original / self.low, plain / self.factor, plain)
        share = (self.original / wavelengths - self.low) / (self.high - self.low)
        between = (wavelengths >= self.original / self.high) & (wavelengths <= self.original / self.low)
        return torch.where(between, (1 - share) * slowed / self.factor + share * slowed, slowed)


@dataclass(frozen=True, slots=True)
class YarnStretch:
    """Pairs that turn more than `fast` times over the `original` positions as ever, those below `slow` times `factor`
    times slower, a ramp between; logits are kept as sharp by `amplitude`.
    """

    factor: float
    original: int
    amplitude: float
    fast: float = 32.0
    slow: float = 1.0
    truncate: bool = True
    """Whether the ramp begins and ends at whole pairs."""

    def frequencies(self, steps: Tensor, theta: float) -> Tensor:
        pairs = steps.shape[0]
        begin, end = (self._pair(turns, 2 * pairs, theta) for turns in (self.fast, self.slow))
        if self.truncate:
            begin, end = math.floor(begin), math.ceil(end)
        begin, end = max(begin, 0), min(end, 2 * pairs - 1)
        width = end - begin if begin != end else 0.001
        ramp = ((torch.arange(pairs, dtype=torch.float32) - begin) / width).clamp(0, 1)
        as_ever = 1 - ramp
        return 1.0 / (self.factor * steps) * (1 - as_ever) + 1.0 / steps * as_ever

    def _pair(self, turns: float, head_dim: int, theta: float) -> float:
        """The pair that turns so often over the original positions."""
        return head_dim * math.log(self.original / (turns * 2 * math.pi)) / (2 * math.log(theta))


def rope_tables(
    length: int, head_dim: int, theta: float, dtype: torch.dtype, stretch: Stretch | None = None
) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines of every position, each [length, 1, head_dim].

    The sines of the first half carry the minus sign of the rotation, so that `apply_rope` needs no negation:
    rotate(x) = [-x2, x1] and x·cos + rotate(x)·sin = x·cos + [x2, x1]·[-sin, sin].
    """
    steps = theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    # 1 / θ^x rather than θ^-x: transformers rounds so.
    frequencies = 1.0 / steps if stretch is None else stretch.frequencies(steps, theta)
    amplitude = 1.0 if stretch is None else stretch.amplitude
    angles = torch.arange(length, dtype=torch.float32)[:, None] * frequencies
    cosines, sines = angles.cos() * amplitude, angles.sin() * amplitude
    return (
        torch.cat((cosines, cosines), dim=-1).to(dtype)[:, None],
        torch.cat((-sines, sines), dim=-1).to(dtype)[:, None],
    )


def apply_rope(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """`x` [tokens, heads, head_dim] rotated by tables [tokens, 1, head_dim]."""
    return torch.addcmul(x * cosines, x.roll(x.shape[-1] // 2, -1), sines)
