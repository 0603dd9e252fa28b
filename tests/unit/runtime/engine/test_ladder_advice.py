"""What passes ask of a ladder, counted by an engine; and padding promised by an advice against padding computed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.ladder_advice import RESULTS, SHAPES, drawn, measured, metrics
from graphpod_operator.observe.ladder_use import MOST_SAMPLES, phase_uses, samples
from graphpod_policy import Backend, FallbackReason, Phase, Policy
from graphpod_policy.ladder.advice import SizeUse, Verdict
from graphpod_runtime.engine.forward.graph_choice import Ladder
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.pass_metrics import PassMetrics
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.wire.counters import Counters
from tests.unit.runtime.engine.passes import ran

RECORDED = json.loads(RESULTS.read_text())
FIRST = 60
"""Requests of each load that a test serves twice."""


def prompt(length: int) -> list[int]:
    return [3 + index for index in range(length)]


def test_counters_equal_a_hand_count_of_a_scripted_sequence(started: Callable[..., Runner]) -> None:
    """Three prompts alone, then three at once that decode together; sizes 4, 8, 16, 32 and 1, 2, 4, 8."""
    runner = started(prefill_sizes=(4, 8, 16, 32))
    for length in (3, 8, 9):
        generate(runner, [prompt(length)], 1, ignore_eos=True)
    generate(runner, [prompt(5), prompt(6), prompt(7)], 4, ignore_eos=True)
    uses = {phase: found.use for phase, found in phase_uses(samples(metrics(runner))).items()}
    prefill, decode = uses[Phase.Prefill], uses[Phase.Decode]
    # 3 → 4, 8 → 8, 9 → 16, and 5 + 6 + 7 = 18 → 32
    assert prefill.sizes == (SizeUse(4, 1, 1), SizeUse(8, 1, 0), SizeUse(16, 1, 7), SizeUse(32, 1, 14))
    assert (prefill.passes, prefill.rows, prefill.refused) == (4, 38, 0)
    assert [index + 1 for index, count in enumerate(prefill.requested[:16]) if count] == [3, 8, 9]
    assert prefill.requested[16] == 1  # 17 to 20 rows
    # three steps of three sequences
    assert decode.sizes == (SizeUse(1, 0, 0), SizeUse(2, 0, 0), SizeUse(4, 3, 3), SizeUse(8, 0, 0))
    assert (decode.passes, decode.rows, decode.unused) == (3, 9, (1, 2))


def test_passes_that_no_ladder_of_this_length_could_run_are_not_asked_of_it(started: Callable[..., Runner]) -> None:
    runner = started(prefill_sizes=(4,), decode=Policy.Disabled)
    generate(runner, [prompt(9), prompt(3)], 3, ignore_eos=True)
    found = phase_uses(samples(metrics(runner)))
    assert found[Phase.Prefill].use.above == 1
    assert found[Phase.Prefill].use.passes == 0
    assert found[Phase.Decode].use.sizes == ()
    assert found[Phase.Decode].use.passes == 0
    assert found[Phase.Decode].policy is Policy.Disabled


def test_only_replays_and_what_the_padding_gate_refused_are_asked_of_a_ladder() -> None:
    """Another ladder with the same largest graph could replay no other fallback."""
    counters = Counters()
    ladder = Ladder(Phase.Prefill, Policy.Breakable, (4, 128, 256), (4, 128), ("PaddingGate",), ready=True)
    metrics = PassMetrics(counters, {Phase.Prefill: ladder}, Backend.Recorder)
    metrics.of(*ran(Phase.Prefill, Policy.Breakable, 3, 4).kind)(0.001, 0.001)
    for reason in FallbackReason:
        metrics.of(*ran(Phase.Prefill, Policy.Disabled, 9, reason).kind)(0.001, 0.001)
    (rows,) = (sample for sample in counters.snapshot() if sample.name == "graphpod_graph_requested_rows")
    assert (sum(rows.buckets), rows.value) == (2, 3 + 9)


def test_every_size_has_its_series_before_the_first_pass(started: Callable[..., Runner]) -> None:
    found = phase_uses(samples(metrics(started())))
    assert found[Phase.Prefill].use.ladder == (4, 8, 16, 32)
    assert found[Phase.Decode].use.ladder == (1, 2, 4, 8)
    assert {use.passes for use in (found[Phase.Prefill].use, found[Phase.Decode].use)} == {0}


def test_an_engine_with_the_longest_ladders_has_fewer_series_than_a_reader_takes(
    started: Callable[..., Runner],
) -> None:
    runner = started()
    per_size = sum(sample.name.startswith("graphpod_graph_size_") for sample in samples(metrics(runner))) / 8
    others = sum(not sample.name.startswith("graphpod_graph_size_") for sample in samples(metrics(runner)))
    assert others + 2 * 128 * per_size < 1100 < MOST_SAMPLES


@pytest.mark.parametrize("name", SHAPES)
def test_the_advised_ladders_pad_what_was_promised(name: str, tmp_path: Path) -> None:
    load = drawn(name, RECORDED["seed"])
    assert [[one.turn, one.prompt, one.answer] for one in load] == RECORDED["loads"][name]["requests"]
    found = measured(load[:FIRST], tmp_path, least_passes=50)
    assert {said.verdict for said, _ in found.values()} == {Verdict.Change}
    for said, again in found.values():
        assert again.ladder == said.better
        assert len(again.ladder) == len(said.use.ladder)
        assert again.padding == said.promised < said.use.padding
        assert (again.passes, again.rows, again.refused) == (said.use.passes, said.use.rows, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_the_whole_recorded_loads_give_the_published_numbers(name: str, tmp_path: Path) -> None:
    rows = RECORDED["loads"][name]["phases"]
    for phase, (said, again) in measured(drawn(name, RECORDED["seed"]), tmp_path).items():
        row = rows[phase.value]
        assert (said.use.padding, said.promised, again.padding) == (row["padding"], row["promised"], row["measured"])
        assert said.better == tuple(row["better"])
