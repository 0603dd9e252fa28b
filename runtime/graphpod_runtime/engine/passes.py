"""The two kinds of forward pass: what a graph captures, what it reads, and the same code run eagerly.

Prefill captures the body only, so any number of sequences shares a size; embedding, final norm and head stay
outside. Decode captures the whole step, from embedding to the greedy token.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from graphpod_policy import Phase
from graphpod_runtime.engine.inputs import Inputs
from graphpod_runtime.engine.sampler import greedy
from graphpod_runtime.graphs.buffers import Buffers, Slot
from graphpod_runtime.models.base import HOST, Attend, Body, Model

Code = Callable[[Attend], None]
"""The stretch a graph captures: reads static buffers, writes static buffers, calls attention through its argument."""


class Pass(Protocol):
    """One phase's forward pass. Sizes and counts are rows: tokens for prefill, sequences for decode."""

    phase: Phase
    buffers: Buffers

    def code(self, size: int) -> Code:
        """What a graph of `size` captures."""

    def arguments(self, size: int) -> tuple[Tensor, ...]:
        """What the code reads: views of the input buffers, padded rows included."""

    def compute(self, attend: Attend, *rows: Tensor) -> tuple[Tensor, ...]:
        """What the code computes, of any rows like its arguments."""

    def write(self, results: tuple[Tensor, ...]) -> None:
        """What the code does with its results: into the first rows of the output buffers."""

    def load(self, inputs: Inputs, size: int) -> None:
        """`inputs` into the static buffers, padded to `size`."""

    def results(self, count: int) -> tuple[Tensor, ...]:
        """What the code writes: views of the output buffers, real rows only."""

    def eager(self, inputs: Inputs, attend: Attend, size: int) -> tuple[Tensor, ...]:
        """The same arithmetic on fresh tensors padded to `size` rows; returns the real rows."""


def _padded(live: Tensor, size: int) -> Tensor:
    """`live` [count, ...] with zero rows up to `size`."""
    if live.shape[0] == size:
        return live
    return torch.cat((live, live.new_zeros((size - live.shape[0], *live.shape[1:]))))


class PrefillPass:
    """Body only: hidden [tokens, hidden] -> hidden."""

    phase = Phase.Prefill

    def __init__(self, model: Model, rows: int, dtype: torch.dtype, device: torch.device = HOST) -> None:
        self.model = model
        width = model.shape.hidden
        self.buffers = Buffers(
            Slot("hidden", rows, (width,), dtype),
            Slot("positions", rows, (), torch.int64),
            Slot("result", rows, (width,), dtype, padding=None),
            device=device,
        )

    def code(self, size: int) -> Code:
        return self.code_of(self.model.body, size)

    def code_of(self, body: Body, size: int) -> Code:
        """What a graph of `size` captures when `body` stands for the model's own."""
        rows = self.arguments(size)
        return lambda attend: self.write((body(*rows, attend),))

    def arguments(self, size: int) -> tuple[Tensor, ...]:
        return self.buffers.view("hidden", size), self.buffers.view("positions", size)

    def compute(self, attend: Attend, *rows: Tensor) -> tuple[Tensor, ...]:
        return (self.model.body(*rows, attend),)

    def write(self, results: tuple[Tensor, ...]) -> None:
        (hidden,) = results
        self.buffers.view("result", hidden.shape[0]).copy_(hidden)

    def load(self, inputs: Inputs, size: int) -> None:
        self.buffers.load("hidden", self.model.embed(inputs.tokens), size)
        self.buffers.load("positions", inputs.positions, size)

    def results(self, count: int) -> tuple[Tensor, ...]:
        return (self.buffers.view("result", count),)

    def eager(self, inputs: Inputs, attend: Attend, size: int) -> tuple[Tensor, ...]:
        hidden = _padded(self.model.embed(inputs.tokens), size)
        return (self.model.body(hidden, _padded(inputs.positions, size), attend)[: inputs.count],)


class DecodePass:
    """The whole step: tokens [sequences] -> (logits [sequences, vocab], greedy tokens [sequences])."""

    phase = Phase.Decode

    def __init__(self, model: Model, rows: int, dtype: torch.dtype, device: torch.device = HOST) -> None:
        self.model = model
        self.buffers = Buffers(
            Slot("tokens", rows, (), torch.int64),
            Slot("positions", rows, (), torch.int64),
            Slot("logits", rows, (model.shape.vocab,), dtype, padding=None),
            Slot("next", rows, (), torch.int64, padding=None),
            device=device,
        )

    def code(self, size: int) -> Code:
        rows = self.arguments(size)
        return lambda attend: self.write(self.compute(attend, *rows))

    def arguments(self, size: int) -> tuple[Tensor, ...]:
        return self.buffers.view("tokens", size), self.buffers.view("positions", size)

    def compute(self, attend: Attend, *rows: Tensor) -> tuple[Tensor, ...]:
        tokens, positions = rows
        logits = self.model.head(self.model.body(self.model.embed(tokens), positions, attend))
        return logits, greedy(logits)

    def write(self, results: tuple[Tensor, ...]) -> None:
        for name, result in zip(("logits", "next"), results, strict=True):
            self.buffers.view(name, result.shape[0]).copy_(result)

    def load(self, inputs: Inputs, size: int) -> None:
        self.buffers.load("tokens", inputs.tokens, size)
        self.buffers.load("positions", inputs.positions, size)

    def results(self, count: int) -> tuple[Tensor, ...]:
        return self.buffers.view("logits", count), self.buffers.view("next", count)

    def eager(self, inputs: Inputs, attend: Attend, size: int) -> tuple[Tensor, ...]:
        results = self.compute(attend, _padded(inputs.tokens, size), _padded(inputs.positions, size))
        return tuple(result[: inputs.count] for result in results)
