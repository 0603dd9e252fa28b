"""Debug modes: each of them is seen to do what it says, and none changes a token of an engine that is right."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from graphpod_policy import Phase, Policy
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.engine.offline import NoToken, generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.graphs.breaks import Stop
from graphpod_runtime.graphs.captured_graphs import BreakableGraph, PhaseGraphs
from tests.unit.runtime.conftest import random_prompts

POLICIES = [(Policy.Breakable, Policy.Full), (Policy.Breakable, Policy.Breakable)]


@pytest.mark.parametrize("policies", POLICIES)
@pytest.mark.parametrize("mode", ["eager", "one-break", "poison", "addresses", "poison,one-break,addresses"])
def test_a_debug_mode_changes_no_token(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch, mode: str, policies: tuple[Policy, Policy]
) -> None:
    prompts = random_prompts(6)
    clean = generate(started(*policies), prompts, 6, ignore_eos=True)
    monkeypatch.setenv("GRAPHPOD_DEBUG", mode)
    assert generate(started(*policies), prompts, 6, ignore_eos=True) == clean


def test_one_break_replays_graphs_that_hold_nothing_of_the_model(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHPOD_DEBUG", "one-break")
    runner = started()
    generate(runner, random_prompts(3), 4, ignore_eos=True)
    for phase in Phase:
        for graph in runner._engine.graphs[phase].graphs.values():
            assert isinstance(graph, BreakableGraph)
            assert graph.segments == 2
            (stop,) = graph.stops
            assert isinstance(stop, Stop)
        value = runner.counters.value
        replays = value("graphpod_graph_replays_total", phase=phase)
        assert replays == value("graphpod_eager_passes_total", phase=phase) > 0  # the model's code ran in each
        assert value("graphpod_graph_fallbacks_total", phase=phase) == 0


def test_poison_shows_a_row_that_is_read_and_must_not_be(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head that looks at the row behind the last real one: without poison it is a zero row and goes unnoticed."""
    right = PhaseGraphs.replay

    def leaking(self: PhaseGraphs, inputs: Inputs, size: int) -> tuple[Tensor, ...]:
        result, *others = right(self, inputs, size)
        return result + behind[inputs.count % 32].sum() * 0, *others

    prompts = [[5, 6, 7, 8, 9]]
    expected = generate(started(), prompts, 4, ignore_eos=True)

    def answer(runner: Runner) -> list[list[int]] | str:
        try:
            return generate(runner, prompts, 4, ignore_eos=True)
        except NoToken as error:
            return str(error)

    seen: list[list[list[int]] | str] = []
    for mode in ("", "poison"):
        monkeypatch.setenv("GRAPHPOD_DEBUG", mode)
        runner = started()
        behind = runner._engine.passes[Phase.Prefill].buffers.view("hidden", 32)
        with monkeypatch.context() as leak:
            leak.setattr(PhaseGraphs, "replay", leaking)
            seen.append(answer(runner))
    assert seen[0] == expected
    assert "no finite logits" in seen[1]


def test_poison_leaves_dead_pages_nan_and_live_ones_finite(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHPOD_DEBUG", "poison")
    runner = started()
    taken = runner.pages.take(2)
    generate(runner, [[5, 6, 7]], 2)
    cache = runner._engine.attention.cache
    dead = torch.tensor(runner.pages.free_pages[-8:], device=cache.device)
    assert cache.keys[:, dead].isnan().all()
    for half in (cache.keys, cache.values):
        assert half[:, taken].isfinite().all()
        assert half[:, 0].isfinite().all()
