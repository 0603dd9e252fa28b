"""How rotary positions reach beyond those of pretraining: a `Stretch` each.

Each is the formula of transformers (modeling_rope_utils.py), in its order of operations: one ulp of a frequency is 1e-4
of a cosine at position 8192.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class LinearStretch:
    """Every pair turns `factor` times slower."""

    factor: float
    amplitude: float = 1.0

    def frequencies(self, steps: Tensor, theta: float) -> Tensor:
        return 1.0 / steps / self.factor


@dataclass(frozen=True, slots=True)
class PairStretch:
    """Each pair turns slower by a factor of its own (longrope, up to the positions of pretraining)."""

    factors: tuple[float, ...]
    amplitude: float = 1.0

    def frequencies(self, steps: Tensor, theta: float) -> Tensor:
        return 1.0 / (torch.tensor(self.factors, dtype=torch.float32) * steps)


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
