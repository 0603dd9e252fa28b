"""Batches for one pass of an engine, made without its scheduler, and what graphs and their code make of them."""

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from graphpod_policy import Phase
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.engine.capture.phase_capture import PhaseCapture
from graphpod_runtime.engine.forward.inputs import inputs_of
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.batch import Batch, Chunk, DecodeBatch, PrefillBatch
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.graphs.captured_graphs import PhaseGraphs


def inputs_for(runner: Runner, phase: Phase, count: int, seed: int, past: int = 9) -> Inputs:
    """`count` rows on random pages: one prompt of which `past` tokens are computed, or sequences that decode."""
    choose = random.Random(seed)
    page_size, cache = runner.config.page_size, runner._engine.attention.cache
    free = choose.sample(range(1, cache.pages), cache.pages - 1)

    def sequence(length: int) -> Sequence:
        tokens = [choose.randrange(3, 211) for _ in range(length)]
        return Sequence("", tokens, length, 1, pages=[free.pop() for _ in range(-(-length // page_size))])

    batch: Batch
    if phase is Phase.Prefill:
        batch = PrefillBatch((Chunk(sequence(past + count), past, past + count),))
    else:
        batch = DecodeBatch(tuple(sequence(choose.randint(1, 4 * page_size)) for _ in range(count)))
    return inputs_of(batch, page_size, runner._engine.device)


@torch.no_grad()
def replayed(runner: Runner, inputs: Inputs, size: int) -> tuple[Tensor, ...]:
    """What the graph of `size` makes of `inputs`; nothing is left of the pass before."""
    captured = runner._engine.captured[inputs.phase]
    captured.poison_results(size)
    return tuple(result.clone() for result in captured.graphs.replay(inputs, size))


@torch.no_grad()
def uncaptured(runner: Runner, inputs: Inputs, size: int) -> tuple[Tensor, ...]:
    """What the code that the graph of `size` captured makes of them."""
    return tuple(result.clone() for result in runner._engine.captured[inputs.phase].uncaptured(inputs, size))


def replay_by_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replays run the code that graphs were captured from."""
    captures: dict[int, PhaseCapture] = {}
    right = PhaseCapture.capture

    def noting(self: PhaseCapture, *arguments: Any) -> None:
        captures[id(self.graphs)] = self
        right(self, *arguments)

    def by_code(self: PhaseGraphs, inputs: Inputs, size: int) -> tuple[Any, ...]:
        return captures[id(self)].uncaptured(inputs, size)

    monkeypatch.setattr(PhaseCapture, "capture", noting)
    monkeypatch.setattr(PhaseGraphs, "replay", by_code)


@torch.no_grad()
def with_a_past(runner: Runner) -> Runner:
    """`runner` with random keys and values in every page but the scratch page."""
    for half in (runner._engine.attention.cache.keys, runner._engine.attention.cache.values):
        half[:, 1:].normal_()
    return runner


@torch.no_grad()
def prompt_logits(runner: Runner, prompt: list[int]) -> Tensor:
    """Logits [tokens, vocab] of every token of `prompt`, by the engine's own eager pass."""
    engine, page_size = runner._engine, runner.config.page_size
    sequence = Sequence("", list(prompt), len(prompt), 1, pages=list(range(1, 1 - (-len(prompt) // page_size))))
    inputs = inputs_of(PrefillBatch((Chunk(sequence, 0, len(prompt)),)), page_size, engine.device)
    engine.attention.plan(inputs)
    (hidden,) = engine.passes[Phase.Prefill].eager(inputs, engine.attention.run, inputs.count)
    logits: Tensor = engine.model.head(hidden)
    return logits
