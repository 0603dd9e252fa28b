"""The least time that the hardware allows for a pass: what must be moved and computed, at the rates it was seen to do.

Weights are read once a pass, whatever its size; the embedding table is not (a few of its rows are), but a tied head
reads it as the head. Arithmetic is two operations for each weight and row; the head runs for one row of a prefill.
Attention's own arithmetic and the traffic of activations are left out, so that a dense model's floor is never above the
truth.

Of a mixture of experts a row computes its chosen ones. A pass reads those that any of its rows has chosen. How many is
not known here: the floor takes what is expected if each row chooses by chance. Rows that choose alike read fewer, and
may be faster than it.
"""

from enum import StrEnum

import msgspec


class Bound(StrEnum):
    """What a pass cannot be faster than."""

    Memory = "memory"
    Arithmetic = "arithmetic"


class Floor(msgspec.Struct, frozen=True, rename="camel"):
    """Seconds of one pass of `size` rows."""

    size: int
    seconds: float
    bound: Bound


class Rates(msgspec.Struct, frozen=True, rename="camel"):
    """What this machine was seen to do: bytes read and written by a copy, operations of a large matrix product in the
    model's dtype, both in a second, the best of several.
    """

    copy_bytes: float
    matmul_operations: float


class ModelFacts(msgspec.Struct, frozen=True, rename="camel"):
    """What floors ask of a model. `body` and `head` count weights, `kv_bytes` is keys and values of one token."""

    name: str
    dtype: str
    random: bool
    vocab: int
    parameters: int
    body: int
    head: int
    weight_bytes: int
    """Of one weight."""
    kv_bytes: int
    expert_weights: int = 0
    """Of `body`: those of all experts; 0: it has none."""
    chosen: float = 1.0
    """The part of a layer's experts that computes a row."""
    fp8: int = 0
    """Of `body`: those in FP8, a byte each."""

    @property
    def held_bytes(self) -> int:
        """All weights."""
        return self.parameters * self.weight_bytes - self.fp8 * (self.weight_bytes - 1)

    def read_bytes(self, rows: int) -> float:
        """Weights that a pass of `rows` reads."""
        unread = self.expert_weights * (1 - self.chosen) ** rows
        return (self.body + self.head - unread) * self.weight_bytes - self.fp8 * (self.weight_bytes - 1)

    @property
    def active(self) -> float:
        """Weights of `body` that compute a row."""
        return self.body - self.expert_weights * (1 - self.chosen)

    @property
    def multiplied(self) -> float:
        """The same in products of the model's dtype: a GPU multiplies FP8 at twice the rate of 16 bits, at most."""
        return self.active - self.fp8 / 2


def prefill_floor(model: ModelFacts, rates: Rates, tokens: int) -> Floor:
    """Of one request of `tokens`, with its first token."""
    return _floor(tokens, model.read_bytes(tokens), 2 * (model.multiplied * tokens + model.head), rates)


def decode_floor(model: ModelFacts, rates: Rates, batch: int, context: float) -> Floor:
    """Of one step of `batch` sequences that attend to `context` tokens each, on average."""
    moved = model.read_bytes(batch) + batch * context * model.kv_bytes
    return _floor(batch, moved, 2 * (model.multiplied + model.head) * batch, rates)


def _floor(size: int, moved: float, operations: float, rates: Rates) -> Floor:
    memory, arithmetic = moved / rates.copy_bytes, operations / rates.matmul_operations
    bound = Bound.Memory if memory >= arithmetic else Bound.Arithmetic
    return Floor(size, max(memory, arithmetic), bound)
