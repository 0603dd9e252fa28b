"""What an embedding is made of: rows of its prompt, as far as they are computed."""

import math
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from graphpod_runtime.wire.messages import Pooling

Vector = NDArray[numpy.float32]


@dataclass(slots=True)
class Pooled:
    """The final hidden states of a prompt, pooled by `by`: as the model's last norm gives them, in single precision.
    What a preemption makes compute again is not pooled again.
    """

    by: Pooling
    known: int = 0
    """Tokens of the prompt whose rows are pooled, or need not be."""
    _count: int = 0
    _sum: Vector | None = None

    def rows(self, start: int, end: int, prompt_len: int) -> range:
        """The positions whose rows a pass over [start, end) gives to the pool."""
        if self.by is Pooling.Last:
            return range(prompt_len - 1, end)
        # Positions up to the start are those of a pass in flight.
        return range(max(start, self.known), end)

    def add(self, rows: int, total: Vector, end: int) -> None:
        """The sum of so many rows, up to position `end`."""
        self._sum = total if self._sum is None else self._sum + total
        self._count, self.known = self._count + rows, end

    def vector(self) -> bytes | None:
        """The mean of the pooled rows, as little-endian float32; None where it is not finite."""
        assert self._sum is not None, "its prompt has not been computed"
        mean = self._sum / self._count
        return mean.astype("<f4").tobytes() if math.isfinite(float(numpy.abs(mean).max())) else None
