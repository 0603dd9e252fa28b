"""The two kinds of forward pass: what a graph captures, what it reads, and the same code run eagerly.

Prefill captures the body only, so any number of sequences shares a size; embedding, final norm and head stay
outside. Decode captures the whole step, from embedding to the greedy token.
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from graphpod_policy import Phase
from graphpod_runtime.base import tensor_pytree
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.base.model_body import Attend, Body
from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.engine.forward.sampling.sampler import greedy
from graphpod_runtime.graphs.buffers import Buffers, Outputs, Slot
from graphpod_runtime.models.model import Model

Code = Callable[[Attend], None]
"""The stretch a graph captures: reads static buffers, writes static buffers, calls attention through its argument."""


class Pass(Protocol):
    """One phase's forward pass. Sizes and counts are rows: tokens for prefill, sequences for decode."""

    phase: Phase
    buffers: Buffers
    outputs: Outputs
    """There once it was reserved."""

    @property
    def slots(self) -> Tensor | None:
        """Where each row's key and value goes, in a static buffer, -1 for padded rows; None: `load` does not say."""

    def reserve(self, like: tuple[Any, ...]) -> None:
        """Makes the output buffers, for results nested and shaped as `like`, which a few rows gave."""

    def code(self, size: int) -> Code:
        """What a graph of `size` captures."""

    def arguments(self, size: int) -> tuple[Tensor, ...]:
        """What the code reads: views of the input buffers, padded rows included."""

    def compute(self, attend: Attend, *rows: Tensor) -> tuple[Any, ...]:
        """What the code computes, of any rows like its arguments: the main result, then others, nested or not."""

    def load(self, inputs: Inputs, size: int) -> None:
        """`inputs` into the static buffers, padded to `size`."""

    def eager(self, inputs: Inputs, attend: Attend, size: int) -> tuple[Any, ...]:
        """The same arithmetic on fresh tensors padded to `size` rows; returns the real rows."""


def padded(live: Tensor, size: int) -> Tensor:
    """`live` [count, ...] with zero rows up to `size`."""
    if live.shape[0] == size:
        return live
    return torch.cat((live, live.new_zeros((size - live.shape[0], *live.shape[1:]))))


def members(result: Any) -> tuple[Any, ...]:
    """What a body returned: hidden states, or a tuple that begins with them."""
    return result if isinstance(result, tuple) else (result,)


def first_rows(results: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    """The first `count` rows of every tensor."""
    return tuple(tensor_pytree.mapped(lambda rows: rows[:count], result) for result in results)


class PrefillPass:
    """Body only: hidden [tokens, hidden] -> (hidden,), and whatever else the body returns."""

    phase = Phase.Prefill
    outputs: Outputs

    def __init__(self, model: Model, rows: int, dtype: torch.dtype, device: torch.device = HOST) -> None:
        self.model, self._rows = model, rows
        self.buffers = Buffers(
            Slot("hidden", rows, *model.embedded(dtype)),
            Slot("positions", rows, (), torch.int64),
            Slot("slots", rows, (), torch.int64, padding=-1),
            device=device,
        )

    @property
    def slots(self) -> Tensor:
        return self.buffers.view("slots", self._rows)

    def reserve(self, like: tuple[Any, ...]) -> None:
        self.outputs = Outputs(like, self._rows)

    def code(self, size: int) -> Code:
        return self.code_of(self.model.body, size)

    def code_of(self, body: Body, size: int) -> Code:
        """What a graph of `size` captures when `body` stands for the model's own."""
        rows = self.arguments(size)
        return lambda attend: self.outputs.write(members(body(*rows, attend)))

    def arguments(self, size: int) -> tuple[Tensor, ...]:
        return self.buffers.view("hidden", size), self.buffers.view("positions", size)

    def compute(self, attend: Attend, *rows: Tensor) -> tuple[Any, ...]:
        return members(self.model.body(*rows, attend))

    def load(self, inputs: Inputs, size: int) -> None:
        self.buffers.load("hidden", self.model.embed(inputs.tokens), size)
        self.buffers.load("positions", inputs.positions, size)
        self.buffers.load("slots", inputs.slots, size)

    def eager(self, inputs: Inputs, attend: Attend, size: int) -> tuple[Any, ...]:
        return self.eager_of(self.model.body, inputs, attend, size)

    def eager_of(self, body: Body, inputs: Inputs, attend: Attend, size: int) -> tuple[Any, ...]:
        """As `eager` when `body` stands for the model's own."""
        hidden = padded(self.model.embed(inputs.tokens), size)
        return first_rows(members(body(hidden, padded(inputs.positions, size), attend)), inputs.count)


class DecodePass:
    """The whole step: tokens [sequences] -> (logits [sequences, vocab], greedy tokens [sequences]), and whatever else
    the body returns; where a head reads `states` and the body returns nothing else, its rows."""

    phase = Phase.Decode
    outputs: Outputs
    slots = None

    def __init__(self, model: Model, rows: int, device: torch.device = HOST, *, states: bool = False) -> None:
        self.model, self._rows, self._states = model, rows, states
        self.buffers = Buffers(
            Slot("tokens", rows, (), torch.int64),
            Slot("positions", rows, (), torch.int64),
            device=device,
        )

    def reserve(self, like: tuple[Any, ...]) -> None:
        self.outputs = Outputs(like, self._rows)

    def code(self, size: int) -> Code:
        rows = self.arguments(size)
        return lambda attend: self.outputs.write(self.compute(attend, *rows))

    def arguments(self, size: int) -> tuple[Tensor, ...]:
        return self.buffers.view("tokens", size), self.buffers.view("positions", size)

    def compute(self, attend: Attend, *rows: Tensor) -> tuple[Any, ...]:
        tokens, positions = rows
        hidden, *others = members(self.model.body(self.model.embed(tokens), positions, attend))
        logits = self.model.head(hidden)
        if self._states and not others:
            others = [hidden]
        return logits, greedy(logits), *others

    def load(self, inputs: Inputs, size: int) -> None:
        self.buffers.load("tokens", inputs.tokens, size)
        self.buffers.load("positions", inputs.positions, size)

    def eager(self, inputs: Inputs, attend: Attend, size: int) -> tuple[Any, ...]:
        results = self.compute(attend, padded(inputs.tokens, size), padded(inputs.positions, size))
        return first_rows(results, inputs.count)
