"""Which size runs a batch, or why none does; and counters that know the metric table."""

from collections.abc import Callable
from typing import Any

import pytest

from graphpod_policy import Backend, Batch, FallbackReason, Phase, Policy
from graphpod_runtime.engine.forward.graph_choice import Ladder, choices, dispatch, gates_of
from graphpod_runtime.engine.pass_metrics import PassMetrics
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.batch import Chunk, PrefillBatch
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.wire.counters import Counters
from tests.unit.runtime.engine.passes import ran

EAGER = "graphpod_eager_passes_total"


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


def test_changes_are_what_was_counted_since_the_last_call() -> None:
    counters = Counters()
    counters.start_at_zero(Backend.Recorder)
    assert len(counters.changes()) == len(counters.snapshot())
    assert counters.changes() == []
    counters.add(EAGER, phase="prefill")
    counters.set("graphpod_requests_running", 3)
    counters.observe("graphpod_forward_duration_seconds", 0.1, phase="decode", policy="Full")
    names = ["graphpod_eager_passes_total", "graphpod_forward_duration_seconds", "graphpod_requests_running"]
    assert sorted(sample.name for sample in counters.changes()) == names
    counters.set("graphpod_requests_running", 3)
    assert counters.changes() == [], "the same value is no change"


def test_a_pass_looks_up_no_series_by_name_after_the_first_of_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checking a name and its labels takes longer than counting: it would be paid by every pass."""
    counters = Counters()
    ladders = {
        Phase.Decode: ladder(phase=Phase.Decode, policy=Policy.Full, planned=(4,), captured=(4,)),
        Phase.Prefill: ladder(),
    }
    metrics = PassMetrics(counters, ladders, Backend.Recorder)
    looked_up: list[str] = []
    key = Counters._key
    monkeypatch.setattr(Counters, "_key", staticmethod(lambda name, *rest: looked_up.append(name) or key(name, *rest)))

    def passes() -> None:
        for phase, policy in ((Phase.Decode, Policy.Full), (Phase.Prefill, Policy.Breakable)):
            metrics.of(*ran(phase, policy, 3, 4).kind)(0.001, 0.002)
            metrics.of(*ran(phase, Policy.Disabled, 3, FallbackReason.SizeAboveLadder).kind)(0.001, 0.002)

    passes()
    assert set(looked_up) == {"graphpod_graph_fallbacks_total"}, "the reasons that exist are not all met"
    looked_up.clear()
    for _ in range(10):
        passes()
    assert looked_up == []
    assert counters.value("graphpod_graph_replays_total", phase="decode", policy="Full") == 11
    assert counters.value("graphpod_graph_tokens_total", phase="decode", kind="padding") == 11
    assert counters.value("graphpod_graph_fallbacks_total") == counters.value(EAGER) == 22
    assert counters.value("graphpod_forward_passes_total") == 44


def test_a_pass_that_fails_is_not_counted(started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one whose launch raises nor one that is launched and never lands."""
    runner = started(Policy.Disabled, Policy.Disabled)
    sequence = Sequence("a", [5, 6, 7], 3, 4, pages=runner.pages.take(1))
    batch = PrefillBatch((Chunk(sequence, 0, 3),))
    runner.launch(batch)
    with monkeypatch.context() as failing:
        failing.setattr(type(runner.engine.passes[Phase.Prefill]), "eager", refuse)
        with pytest.raises(ArithmeticError):
            runner.launch(batch)
    names = ("graphpod_forward_passes_total", "graphpod_graph_fallbacks_total", EAGER)
    assert [runner.counters.value(name) for name in names] == [0, 0, 0]
    runner.forward(batch)
    assert [runner.counters.value(name) for name in names] == [1, 1, 1]


def refuse(*_: object) -> None:
    raise ArithmeticError


@pytest.mark.parametrize("policy", [Policy.Breakable, Policy.Disabled])
def test_the_choice_for_each_number_of_rows_is_what_dispatch_answers(policy: Policy) -> None:
    subject = ladder(policy=policy)
    table = choices(subject)
    assert table == tuple(dispatch(subject, batch(rows)) for rows in range(257))
    assert dispatch(subject, batch(len(table))) in (FallbackReason.SizeAboveLadder, FallbackReason.Disabled)
