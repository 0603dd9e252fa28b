"""Embeddings: rows of a prompt's passes, whatever way the prompt came through the engine."""

from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import torch
from numpy.typing import NDArray
from transformers import LlamaForCausalLM

from graphpod_policy import Policy
from graphpod_runtime.engine.loop import Loop
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.wire.messages import (
    Abort,
    Command,
    Event,
    Finished,
    FinishReason,
    Pooling,
    Submit,
    Tokens,
)
from tests.unit.runtime.conftest import random_prompts, write_llama

PROMPTS = random_prompts(9, shortest=1, longest=100)
ASKED = pytest.mark.parametrize("pooling", list(Pooling))


class Link:
    """Commands in, events kept."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.events: list[Event] = []

    def poll(self, seconds: float) -> list[Command]:
        commands, self.commands = self.commands, []
        return commands

    def send(self, events: list[Event]) -> None:
        self.events += events


def served(runner: Runner) -> tuple[Loop, Link]:
    link = Link()
    return Loop(runner, link, lambda: None), link


def asked(id: str, prompt: list[int], pooling: Pooling | None) -> Submit:
    return Submit(id, prompt, 1 if pooling else 6, pooling=pooling, ignore_eos=True)


def run(loop: Loop, link: Link, *commands: Command) -> dict[str, NDArray[numpy.float32]]:
    """The vectors of these requests, by id."""
    link.commands += commands
    loop.turn()
    while loop.busy:
        loop.turn()
    return {
        event.id: numpy.frombuffer(event.vector, "<f4")
        for event in link.events
        if isinstance(event, Tokens) and event.vector
    }


def expected(folder: Path, prompt: list[int], pooling: Pooling) -> NDArray[numpy.float32]:
    """What transformers says, in single precision."""
    model = LlamaForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        states = model.model(torch.tensor([prompt])).last_hidden_state[0]
    found: NDArray[numpy.float32] = (states[-1] if pooling is Pooling.Last else states.mean(dim=0)).numpy()
    return found


def same(one: NDArray[numpy.float32], other: NDArray[numpy.float32]) -> bool:
    """Within rounding: entries are of size 1."""
    return one.shape == other.shape and bool(numpy.abs(one - other).max() < 2e-4)


@ASKED
def test_vectors_are_those_of_transformers_in_any_batch(
    started: Callable[..., Runner], llama_folder: Path, pooling: Pooling
) -> None:
    runner = started()
    loop, link = served(runner)
    mixed = [asked(f"text {at}", prompt, None) for at, prompt in enumerate(PROMPTS[:3])]
    found = run(loop, link, *mixed, *(asked(str(at), prompt, pooling) for at, prompt in enumerate(PROMPTS)))
    assert found.keys() == {str(at) for at in range(len(PROMPTS))}
    for at, prompt in enumerate(PROMPTS):
        assert same(found[str(at)], expected(llama_folder, prompt, pooling)), at
    ends = [event for event in link.events if isinstance(event, Finished) and event.id in found]
    assert [event.reason for event in ends] == [FinishReason.Stop] * len(PROMPTS)
    assert runner.counters.value("graphpod_eager_passes_total") == 0
    assert runner.counters.value("graphpod_graph_replays_total", phase="prefill") > 0
    assert loop.scheduler.kv.available == loop.scheduler.kv.capacity


@ASKED
@pytest.mark.parametrize("policy", [Policy.Disabled, Policy.Breakable, Policy.Piecewise])
def test_every_policy_gives_the_same_vectors(
    started: Callable[..., Runner], llama_folder: Path, pooling: Pooling, policy: Policy
) -> None:
    runner = started(policy, Policy.Disabled)
    found = run(*served(runner), *(asked(str(at), prompt, pooling) for at, prompt in enumerate(PROMPTS[:4])))
    for at, prompt in enumerate(PROMPTS[:4]):
        assert same(found[str(at)], expected(llama_folder, prompt, pooling))
    fallbacks = runner.counters.value("graphpod_graph_fallbacks_total", phase="prefill")
    gated = runner.counters.value("graphpod_graph_fallbacks_total", phase="prefill", reason="InputLogprobsGate")
    if policy is not Policy.Disabled:
        # All rows of a pass are read for a mean, and Piecewise proves the last ones only.
        assert (fallbacks > 0) == (policy is Policy.Piecewise and pooling is Pooling.Mean)
        assert fallbacks == gated


@ASKED
def test_a_prefix_hit_changes_no_vector(started: Callable[..., Runner], llama_folder: Path, pooling: Pooling) -> None:
    loop, link = served(started())
    (prompt,) = random_prompts(1, shortest=90, longest=90)
    first = run(loop, link, asked("first", prompt, pooling))["first"]
    again = run(loop, link, asked("again", prompt, pooling))["again"]
    longer = run(loop, link, asked("longer", [*prompt, 9, 8], pooling))["longer"]
    assert same(first, again)
    assert same(longer, expected(llama_folder, [*prompt, 9, 8], pooling))
    cached = {event.id: event.cached for event in link.events if isinstance(event, Tokens)}
    # All rows of a mean are computed; the last row alone needs nothing of the others but their keys and values.
    assert (cached["again"] > 0) == (pooling is Pooling.Last)
    text = run(loop, link, asked("text", prompt, None))
    assert text is not None
    assert next(e.cached for e in link.events if isinstance(e, Tokens) and e.id == "text" and e.cached) > 0


@ASKED
def test_what_a_preemption_computes_again_is_pooled_once(
    started: Callable[..., Runner], llama_folder: Path, pooling: Pooling
) -> None:
    loop, link = served(started())
    (prompt,) = random_prompts(1, shortest=100, longest=100)
    link.commands.append(asked("it", prompt, pooling))
    loop.turn()
    while not next(iter(loop.scheduler._open.values())).computed:
        loop.turn()
    while loop._pipeline._flights:
        loop._pipeline._land(loop._pipeline._flights.popleft())
    loop.scheduler._preempt()
    assert same(run(loop, link)["it"], expected(llama_folder, prompt, pooling))


def test_an_abort_in_flight_gives_the_pages_back(started: Callable[..., Runner]) -> None:
    loop, link = served(started())
    (prompt,) = random_prompts(1, shortest=100, longest=100)
    link.commands.append(asked("it", prompt, Pooling.Mean))
    loop.turn()
    assert run(loop, link, Abort("it")) == {}
    assert loop.scheduler.kv.available == loop.scheduler.kv.capacity


@ASKED
def test_states_that_are_not_finite_end_their_request_alone(
    started: Callable[..., Runner], pooling: Pooling, tmp_path: Path
) -> None:
    runner = started(folder=write_llama(tmp_path, tied=False))
    loop, link = served(runner)
    with torch.no_grad():
        runner.engine.model.module().embedding[200] = float("nan")
    found = run(loop, link, asked("good", [5, 6, 7], pooling), asked("bad", [5, 200, 7], pooling))
    assert found.keys() == {"good"}
    (bad,) = [event for event in link.events if isinstance(event, Finished) and event.id == "bad"]
    assert bad.reason is FinishReason.Error
    assert runner.counters.value("graphpod_nonfinite_logits_total") == 1
    assert same(run(loop, link, asked("next", [5, 6, 7], pooling))["next"], found["good"])


def test_a_request_for_text_pays_for_no_vector(started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch) -> None:
    runner = started()
    loop, link = served(runner)

    def never(hidden: torch.Tensor) -> torch.Tensor:
        raise AssertionError("the final norm was asked for")

    monkeypatch.setattr(runner.engine.model, "final", never)
    assert run(loop, link, asked("text", [5, 6, 7], None)) == {}
