"""How rows draw their tokens: parameters on the device, and constants that every device shares."""

from typing import NamedTuple

from torch import Tensor

LEAST_MASS = 2.0**-40
"""The unit of masses. 2**22 tokens as likely as the best one sum to 2**62."""

LARGEST_UNIFORM = 1 - 2.0**-24
"""The single-precision number below 1: an exponential is finite, and the best token's score is above 0."""


class SamplingTensors(NamedTuple):
    """How each row draws, contiguous [rows] each, and which filters any of them uses: the others cost nothing."""

    seeds: Tensor
    """int64."""
    inverse_temperatures: Tensor
    """float32, finite and above 0."""
    top_k: Tensor
    """int64, at least 1; the vocabulary's size or more: no cut."""
    top_p: Tensor
    """float64, above 0; 1 or more: no cut."""
    farthest: Tensor
    """float32, -log(min_p); infinite: no cut."""
    cuts_k: bool
    cuts_p: bool
    cuts_far: bool

    def slice(self, first: int, end: int) -> "SamplingTensors":
        """Rows [first, end)."""
        return SamplingTensors(*(part[first:end] for part in self[:5]), *self[5:])
