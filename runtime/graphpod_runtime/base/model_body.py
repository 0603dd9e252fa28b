"""What a graph captures of a model: a body of layers that calls attention."""

from typing import Protocol

from torch import Tensor


class Attend(Protocol):
    """Attention as a model calls it: layer index, q [tokens, heads, d], k and v [tokens, kv_heads, d].

    Returns [tokens, heads · d]. The caller decides whether it runs inside a graph or as a break.
    """

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor: ...


class Body(Protocol):
    """The layers between embedding and final norm, the stretch that prefill graphs capture.

    hidden [tokens, hidden], positions [tokens] -> [tokens, hidden]. Rows do not see each other except in `attend`.
    `hidden` is given away: compiled layers add to it in place.
    """

    def __call__(self, hidden: Tensor, positions: Tensor, attend: Attend) -> Tensor: ...
