"""How a request chooses its tokens."""

import math
import secrets
from dataclasses import dataclass, field, replace

from graphpod_runtime.wire.logit_processing import NO_PROCESSING, LogitProcessing

STEEPEST = 1e30
"""The largest inverse temperature, and the inverse of the smallest one: single precision holds both."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen. The filters apply after the temperature, in this order: top_k likeliest tokens
    (0: all), the likeliest ones that together have `top_p` of the mass (1: all), those with at least `min_p` of the
    likeliest one's probability (0: all).
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    """64 bits. A Sequence without one draws one at random."""
    top_k: int = 0
    min_p: float = 0.0
    processing: LogitProcessing = field(default=NO_PROCESSING, hash=False)
    """What is done to the logits before all of that."""

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is chosen, the first of equal ones."""
        return self.temperature == 0 or self.top_k == 1

    @property
    def steepness(self) -> float:
        """1 / temperature, within what single precision can hold."""
        return min(STEEPEST, 1 / max(self.temperature, 1 / STEEPEST))

    @property
    def farthest(self) -> float:
        """How far below the likeliest token's log-probability min_p cuts: 0 or more, and never -0, whose bits are not
        in the order of floats."""
        return abs(math.log(self.min_p)) if self.min_p > 0 else math.inf

    def seeded(self) -> "Sampling":
        """The same with a seed, a random one where it has none."""
        return self if self.seed is not None else replace(self, seed=secrets.randbits(63))
