"""What one forward pass yields."""

from dataclasses import dataclass
from typing import NamedTuple

from graphpod_runtime.engine.schedule.pooled import Vector
from graphpod_runtime.wire.messages import Logprob

NOT_FINITE = -1
"""In the place of a token: the model's logits of the row were not finite. Also of a chunk that yields none."""
NOTHING_LEFT = -2
"""In the place of a token: the request's own masks have left none."""


class PooledSum(NamedTuple):
    """The sum of some rows of one chunk, float32 [hidden]."""

    entry: int
    rows: int
    total: Vector


@dataclass(frozen=True, slots=True)
class Yielded:
    """What one pass gave, by chunk or sequence of its batch: `tokens`, NOT_FINITE for a chunk that does not end its
    prompt, and log-probabilities where they were asked for, both empty when no sequence of the batch did.
    """

    tokens: list[int]
    answers: tuple[Logprob | None, ...] = ()
    """Of `tokens`."""
    prompts: tuple[tuple[Logprob, ...], ...] = ()
    """Of each chunk's `scored` positions."""
    pooled: tuple[PooledSum, ...] = ()
