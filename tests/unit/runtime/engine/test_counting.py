"""Every pass counts once, in two places that do not know of each other."""

from collections.abc import Callable
from typing import Any

import pytest

from graphpod_policy import Batch, FallbackReason, Phase, Policy
from graphpod_runtime.engine.capture import PhaseGraphs
from graphpod_runtime.engine.counters import Counters
from graphpod_runtime.engine.generate import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.graphs.dispatch import Ladder, dispatch, gates_of
from tests.unit.runtime.conftest import random_prompts

FALLBACKS = "graphpod_graph_fallbacks_total"
EAGER = "graphpod_eager_passes_total"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"prefill": Policy.Disabled},
        {"decode": Policy.Disabled},
        {"prefill": Policy.Disabled, "decode": Policy.Disabled},
        {"decode_sizes": (1, 2)},
        {"prefill_sizes": (4, 8)},
    ],
)
def test_fallbacks_equal_eager_passes_and_passes_equal_replays_and_fallbacks(
    started: Callable[..., Runner], settings: dict[str, Any]
) -> None:
    runner = started(**settings)
    generate(runner, random_prompts(6), 6, ignore_eos=True)
    value = runner.counters.value
    for phase in Phase:
        assert value(FALLBACKS, phase=phase) == value(EAGER, phase=phase)
        passes = value("graphpod_forward_passes_total", phase=phase)
        assert passes == value("graphpod_graph_replays_total", phase=phase) + value(FALLBACKS, phase=phase) > 0
        assert value("graphpod_forward_passes_total", phase=phase, policy="Disabled") == value(EAGER, phase=phase)


def test_a_replay_that_runs_the_model_s_code_is_seen_by_the_hook(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two counts must be able to differ: this graph claims a replay and computes eagerly."""
    runner = started()
    monkeypatch.setattr(PhaseGraphs, "replay", PhaseGraphs.uncaptured)
    generate(runner, random_prompts(2), 3, ignore_eos=True)
    for phase in Phase:
        assert runner.counters.value(FALLBACKS, phase=phase) == 0
        assert runner.counters.value(EAGER, phase=phase) > 0


def test_a_start_counts_no_pass(started: Callable[..., Runner]) -> None:
    runner = started()
    for name in (FALLBACKS, EAGER, "graphpod_forward_passes_total", "graphpod_graph_replays_total"):
        assert runner.counters.value(name) == 0
    assert runner.counters.value("graphpod_graph_captures_total", phase="prefill", result="ok") == 4
    assert runner.counters.value("graphpod_graph_captures_total", phase="decode", result="ok") == 8  # measured, final


def test_batches_above_the_ladder_fall_back_with_that_reason(started: Callable[..., Runner]) -> None:
    runner = started(decode_sizes=(1, 2))
    generate(runner, random_prompts(5), 4, ignore_eos=True)
    above = runner.counters.value(FALLBACKS, phase="decode", reason="SizeAboveLadder")
    assert above == runner.counters.value(FALLBACKS, phase="decode") > 0


def test_rows_are_counted_as_real_and_padding(started: Callable[..., Runner]) -> None:
    runner = started(decode=Policy.Disabled)
    generate(runner, [[5] * 13], 1)
    assert runner.counters.value("graphpod_graph_tokens_total", phase="prefill", kind="real") == 13
    assert runner.counters.value("graphpod_graph_tokens_total", phase="prefill", kind="padding") == 3


def ladder(**changes: Any) -> Ladder:
    settings = {
        "phase": Phase.Prefill,
        "policy": Policy.Breakable,
        "planned": (4, 8, 128, 256),
        "captured": (4, 8, 128),
        "gates": ("InputLogprobsGate", "PaddingGate"),
        "ready": True,
    }
    return Ladder(**(settings | changes))


def batch(rows: int, **asked: Any) -> Batch:
    return Batch(Phase.Prefill, Policy.Disabled, rows, rows, **asked)


@pytest.mark.parametrize(
    ("settings", "count", "answer"),
    [
        ({}, 3, 4),
        ({}, 8, 8),
        ({}, 65, 128),
        ({}, 9, FallbackReason.PaddingGate),
        ({"captured": (16,)}, 5, 16),  # more than twice, but few rows
        ({}, 200, FallbackReason.NotCaptured),
        ({}, 257, FallbackReason.SizeAboveLadder),
        ({"ready": False}, 3, FallbackReason.WarmingUp),
        ({"forced_eager": True}, 3, FallbackReason.ForcedEager),
        ({"forced_eager": True}, 257, FallbackReason.ForcedEager),
        ({"forced_eager": True, "policy": Policy.Disabled}, 3, FallbackReason.Disabled),
        ({"policy": Policy.Disabled, "ready": False}, 3, FallbackReason.Disabled),
        ({"gates": ()}, 9, 128),
    ],
)
def test_dispatch_answers_a_size_or_the_one_reason(
    settings: dict[str, Any], count: int, answer: int | FallbackReason
) -> None:
    assert dispatch(ladder(**settings), batch(count)) == answer


def test_all_gates_of_the_plan_are_asked_and_the_first_that_refuses_is_the_one_reason() -> None:
    piecewise = ladder(policy=Policy.Piecewise)
    assert dispatch(piecewise, batch(8, input_logprobs=True)) is FallbackReason.InputLogprobsGate
    assert dispatch(piecewise, batch(9, input_logprobs=True)) is FallbackReason.InputLogprobsGate
    assert dispatch(piecewise, batch(9)) is FallbackReason.PaddingGate
    assert dispatch(ladder(), batch(8, input_logprobs=True)) == 8  # the gate is about Piecewise
    every = ladder(policy=Policy.Full, gates=("SlotGate",))
    assert dispatch(every, batch(8, requests=9, slots=8)) is FallbackReason.SlotGate


def test_a_phase_is_asked_only_the_gates_that_speak_about_it() -> None:
    gates = ("TargetVerifyGate", "InputLogprobsGate", "RankVoteGate", "PaddingGate")
    assert gates_of(gates, Phase.Prefill, Policy.Piecewise) == gates
    assert gates_of(gates, Phase.Prefill, Policy.Breakable) == ("TargetVerifyGate", "RankVoteGate", "PaddingGate")
    assert gates_of(gates, Phase.Decode, Policy.Full) == ("RankVoteGate",)


def test_forced_eager_runs_every_pass_eagerly_and_counts_that_reason(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = random_prompts(5)
    graphs = generate(started(), prompts, 6, ignore_eos=True)
    monkeypatch.setenv("GRAPHPOD_DEBUG", "eager")
    runner = started()
    assert generate(runner, prompts, 6, ignore_eos=True) == graphs
    value = runner.counters.value
    for phase in Phase:
        assert runner.report.phases[phase].captured == 4
        assert value("graphpod_graph_replays_total", phase=phase) == 0
        assert value(FALLBACKS, phase=phase, reason="ForcedEager") == value(EAGER, phase=phase) > 0
        assert value(FALLBACKS, phase=phase) == value(EAGER, phase=phase)


def test_counters_know_the_metric_table() -> None:
    counters = Counters()
    with pytest.raises(KeyError):
        counters.add("graphpod_no_such_total")
    with pytest.raises(ValueError, match="labels"):
        counters.add(EAGER, phases="prefill")
    with pytest.raises(ValueError, match="not a gauge"):
        counters.set(EAGER, 1, phase="prefill")
    labels = {"phase": "prefill", "policy": "Full", "backend": "Recorder"}
    for seconds in (0.005, 0.3, 100):
        counters.observe("graphpod_graph_capture_duration_seconds", seconds, **labels)
    (sample,) = counters.snapshot()
    assert sample.value == pytest.approx(100.305)
    assert sum(sample.buckets) == 3
    assert (sample.buckets[0], sample.buckets[5], sample.buckets[-1]) == (1, 1, 1)
