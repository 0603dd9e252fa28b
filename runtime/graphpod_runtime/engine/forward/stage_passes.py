"""Passes of a pipeline's stage: they begin with states of the stage before and end with states for the next one.

What is received and sent stands outside every graph: a graph reads and writes static buffers, as of a whole model. All
stages run the same passes in the same order, those of a start, too.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.base.model_body import Attend, Body
from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.engine.forward.passes import DecodePass, Pass, PrefillPass, first_rows, members, padded
from graphpod_runtime.engine.forward.sampling.sampler import greedy
from graphpod_runtime.graphs.buffers import Buffers, Slot
from graphpod_runtime.graphs.captured_graphs import PhaseGraphs
from graphpod_runtime.models.stage import StageModel


class StagePass(Pass, Protocol):
    """A pass of a stage."""

    def enter(self, count: int, size: int) -> None:
        """States of the stage before, `count` rows, into the static buffer, padded to `size`; the first stage has its
        tokens there."""

    def leave(self, results: tuple[Any, ...]) -> None:
        """`results` of the stage are there: their states go to the next one."""


def _take_states(model: StageModel, buffers: Buffers, count: int, size: int) -> None:
    if count < size:
        buffers.load("hidden", buffers.view("hidden", 0).clone(), size)
    model.pipeline.take_states(buffers.view("hidden", count))


class StagePrefill(PrefillPass):
    """hidden [tokens, hidden] -> (hidden,), which every stage but the last sends on."""

    model: StageModel

    def enter(self, count: int, size: int) -> None:
        if not self.model.pipeline.position.begins:
            _take_states(self.model, self.buffers, count, size)

    def leave(self, results: tuple[Any, ...]) -> None:
        self.model.pipeline.pass_on(results[0])

    def load(self, inputs: Inputs, size: int) -> None:
        if self.model.pipeline.position.begins:
            super().load(inputs, size)
            return
        self.enter(inputs.count, size)
        self.buffers.load("positions", inputs.positions, size)
        self.buffers.load("slots", inputs.slots, size)

    def eager_of(self, body: Body, inputs: Inputs, attend: Attend, size: int) -> tuple[Any, ...]:
        results = super().eager_of(body, inputs, attend, size)
        self.leave(results)
        return results


class StageDecode(DecodePass):
    """The stage's part of a step: tokens [sequences] at the first stage, else states [sequences, hidden] -> (states,),
    at the last one (logits, greedy tokens)."""

    model: StageModel

    def __init__(self, model: StageModel, rows: int, dtype: torch.dtype, device: torch.device = HOST) -> None:
        super().__init__(model, rows, device)
        if not model.pipeline.position.begins:
            self.buffers = Buffers(
                Slot("tokens", rows, (), torch.int64),
                Slot("positions", rows, (), torch.int64),
                Slot("hidden", rows, *model.embedded(dtype)),
                device=device,
            )

    def arguments(self, size: int) -> tuple[Tensor, ...]:
        if self.model.pipeline.position.begins:
            return super().arguments(size)
        return self.buffers.view("hidden", size), self.buffers.view("positions", size)

    def compute(self, attend: Attend, *rows: Tensor) -> tuple[Any, ...]:
        entering, positions = rows
        place = self.model.pipeline.position
        hidden, *_ = members(
            self.model.body(self.model.embed(entering) if place.begins else entering, positions, attend)
        )
        if not place.ends:
            return (hidden,)
        logits = self.model.own.head(hidden)
        return logits, greedy(logits)

    def enter(self, count: int, size: int) -> None:
        if not self.model.pipeline.position.begins:
            _take_states(self.model, self.buffers, count, size)

    def leave(self, results: tuple[Any, ...]) -> None:
        self.model.pipeline.pass_on(results[0])

    def load(self, inputs: Inputs, size: int) -> None:
        super().load(inputs, size)
        self.enter(inputs.count, size)

    def eager(self, inputs: Inputs, attend: Attend, size: int) -> tuple[Any, ...]:
        entering = inputs.tokens if self.model.pipeline.position.begins else self.model.embed(inputs.tokens)
        results = self.compute(attend, padded(entering, size), padded(inputs.positions, size))
        results = first_rows(results, inputs.count)
        self.leave(results)
        return results


@dataclass(slots=True, kw_only=True)
class StageGraphs(PhaseGraphs):
    """The graphs of a stage's passes."""

    passing: StagePass

    def replay(self, inputs: Inputs, size: int) -> tuple[Any, ...]:
        if inputs.in_place:
            self.passing.enter(inputs.count, size)
        results = PhaseGraphs.replay(self, inputs, size)
        self.passing.leave(results)
        return results
