"""Eager passes are counted by a hook on the model's body, fallbacks by dispatch: two places that do not know of each
other, so their equality means something. On a GPU a profiler counts as many graph launches as replays × segments.
"""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from graphpod_policy import CompileMode, Device, Phase, Policy
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from tests.contracts.passes import replay_by_code
from tests.unit.runtime.conftest import random_prompts

FALLBACKS = "graphpod_graph_fallbacks_total"
EAGER = "graphpod_eager_passes_total"
REPLAYS = "graphpod_graph_replays_total"
PASSES = "graphpod_forward_passes_total"


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


def test_passes_follow_one_another_on_the_device_so_their_times_add_up_to_less_than_the_clock(
    started: Callable[..., Runner],
) -> None:
    runner = started()
    began = time.perf_counter()
    generate(runner, random_prompts(6), 6, ignore_eos=True)
    elapsed = time.perf_counter() - began
    took = [one for one in runner.counters.snapshot() if one.name == "graphpod_forward_duration_seconds"]
    for phase in Phase:
        of_phase = [one for one in took if one.labels["phase"] == phase]
        assert sum(map(sum, (one.buckets for one in of_phase))) == runner.counters.value(PASSES, phase=phase) > 0
    busy = sum(one.value for one in took)
    assert 0 < busy < elapsed


def test_a_replay_that_runs_the_model_s_code_is_seen_by_the_hook(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two counts must be able to differ: this graph claims a replay and computes eagerly."""
    replay_by_code(monkeypatch)
    runner = started()
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


@pytest.mark.usefixtures("as_written")
def test_a_pass_that_met_code_without_a_compilation_has_that_reason(started: Callable[..., Runner]) -> None:
    """Only what is compiled in the process can meet it, and only in a pass that no graph runs."""
    runner = started(compile=CompileMode.Inductor, prefill_sizes=(4, 8))
    cache = runner.engine.cache
    assert cache is not None
    assert cache.sealed, "once Ready, nothing is compiled"
    body = runner.engine.model.body
    body.register_forward_pre_hook(lambda *_: cache.ran_uncompiled())
    generate(runner, random_prompts(2, shortest=20, longest=30), 3, ignore_eos=True)
    value = runner.counters.value
    assert value(FALLBACKS, reason="Recompiled") == value(FALLBACKS) == value(EAGER) > 0


def test_counters_equal_a_hand_count_of_scripted_passes(started: Callable[..., Runner]) -> None:
    """Prompts of 3, 8, 5 and 20 tokens, one at a time, then three of 2 tokens at once; three tokens each:
    the first comes from prefill, two from decode passes. Prefill has graphs of 4 and 8 rows, decode of 1 and 2.
    """
    runner = started(prefill_sizes=(4, 8), decode_sizes=(1, 2))
    for length in (3, 8, 5, 20):
        generate(runner, random_prompts(1, shortest=length, longest=length), 3, ignore_eos=True)
    generate(runner, random_prompts(3, shortest=2, longest=2), 3, ignore_eos=True)

    def counted(name: str, phase: str, *labels: str) -> dict[str, float]:
        """What is not 0, by the values of these labels."""
        found = {
            " ".join(sample.labels[label] for label in labels): sample.value
            for sample in runner.counters.snapshot()
            if sample.name == f"graphpod_{name}" and sample.labels["phase"] == phase and sample.value
        }
        return dict(sorted(found.items()))

    hand_counted = {
        # 3 of 4, 8 of 8, 5 of 8, 20: too many, 3 × 2 of 8
        "prefill": {
            ("forward_passes_total", "policy"): {"Breakable": 4, "Disabled": 1},
            ("graph_replays_total",): {"": 4},
            ("graph_fallbacks_total", "reason"): {"SizeAboveLadder": 1},
            ("eager_passes_total",): {"": 1},
            ("graph_tokens_total", "kind"): {"padding": 1 + 0 + 3 + 2, "real": 3 + 8 + 5 + 6},
            ("graph_size_replays_total", "size"): {"4": 1, "8": 3},
            ("graph_size_padding_tokens_total", "size"): {"4": 1, "8": 0 + 3 + 2},
            ("graph_requested_rows",): {"": 3 + 8 + 5 + 6},
        },
        # four times two passes of one sequence, and two of three sequences: too many
        "decode": {
            ("forward_passes_total", "policy"): {"Disabled": 2, "Full": 8},
            ("graph_replays_total",): {"": 8},
            ("graph_fallbacks_total", "reason"): {"SizeAboveLadder": 2},
            ("eager_passes_total",): {"": 2},
            ("graph_tokens_total", "kind"): {"real": 8},
            ("graph_size_replays_total", "size"): {"1": 8},
            ("graph_size_padding_tokens_total", "size"): {},
            ("graph_requested_rows",): {"": 8},
        },
    }
    for phase, table in hand_counted.items():
        assert {key: counted(key[0], phase, *key[1:]) for key in table} == table


def test_rows_are_counted_as_real_and_padding(started: Callable[..., Runner]) -> None:
    runner = started(decode=Policy.Disabled)
    generate(runner, [[5] * 13], 1)
    assert runner.counters.value("graphpod_graph_tokens_total", phase="prefill", kind="real") == 13
    assert runner.counters.value("graphpod_graph_tokens_total", phase="prefill", kind="padding") == 3


def test_prompts_that_fit_the_ladder_run_on_graphs_alone(started: Callable[..., Runner]) -> None:
    runner = started()
    generate(runner, random_prompts(6), 6, ignore_eos=True)
    value = runner.counters.value
    assert value(FALLBACKS) == value(EAGER) == 0
    assert value(REPLAYS, phase="decode", policy="Full") == value("graphpod_forward_passes_total", phase="decode") > 0


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
        assert value(REPLAYS, phase=phase) == 0
        assert value(FALLBACKS, phase=phase, reason="ForcedEager") == value(EAGER, phase=phase) > 0
        assert value(FALLBACKS, phase=phase) == value(EAGER, phase=phase)


@pytest.mark.gpu
@pytest.mark.parametrize("device", [Device.Cuda], indirect=True, ids=str)
@pytest.mark.parametrize(
    ("prefill", "decode"),
    [
        (Policy.Breakable, Policy.Full),
        (Policy.Breakable, Policy.Breakable),
        (Policy.Piecewise, Policy.Full),
        (Policy.Disabled, Policy.Full),
        (Policy.Breakable, Policy.Disabled),
    ],
)
def test_the_profiler_counts_as_many_launches_as_replays_times_segments(
    started: Callable[..., Runner], prefill: Policy, decode: Policy
) -> None:
    runner = started(prefill, decode)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        generate(runner, random_prompts(5), 6, ignore_eos=True)
    launches = sum(event.count for event in profile.key_averages() if event.key == "cudaGraphLaunch")
    expected = sum(
        runner.counters.value(REPLAYS, phase=phase) * runner.report.phases[phase].segments for phase in Phase
    )
    assert launches == expected > 0
