"""A stage of the start, one size of it, or a pass of serving is stuck after the longer of 60 s and three times the
plan's estimate for it. Only progress counts: a heart that beats beside a stuck loop does not help.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphpod_policy import Budget, CompileMode, Features, GraphRequest, ModelFacts, Policy, resolve
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.start import starter
from graphpod_runtime.front.watchdog import Watchdog
from graphpod_runtime.models import tensor_destination
from graphpod_runtime.models.loader import load_model
from graphpod_runtime.wire.messages import Heartbeat


class Clock:
    """Seconds that pass when told."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def watchdog(clock: Clock, capture_seconds: int = 10) -> Watchdog:
    plan = resolve(Features(), GraphRequest(prefill_sizes=(100, 400), decode_sizes=(4, 8)))
    return Watchdog(replace(plan, budget=Budget(capture_seconds, 120 + 2 * capture_seconds)), clock)


def test_progress_within_the_limit_is_well() -> None:
    clock = Clock()
    subject = watchdog(clock)
    for _ in range(10):
        clock.now += 59
        assert subject.stuck() is None
        subject.heard(Heartbeat(clock.now, "Ready"))


@pytest.mark.parametrize(
    ("stage", "capture_seconds", "limit"),
    [
        ("Import", 10, 360),  # three times what import and load may take
        ("Loading", 10, 360),
        ("Capturing", 10, 60),  # the floor
        ("Capturing", 512, 1200),  # three times the largest size's share, 400 of 512 rows
        ("SelfChecking", 512, 1200),
        ("Ready", 10, 60),
        ("Ready", 512, 1200),  # a pass takes no longer than the capture that ran it
    ],
)
def test_each_stage_has_its_limit(stage: str, capture_seconds: int, limit: int) -> None:
    clock = Clock()
    subject = watchdog(clock, capture_seconds)
    subject.heard(Heartbeat(clock.now, stage))
    clock.now += limit
    assert subject.stuck() is None
    clock.now += 1
    assert subject.stuck() == f"no progress at {stage} for {limit + 1} s, the limit is {limit} s"


def test_a_heart_that_beats_without_progress_does_not_help() -> None:
    clock = Clock()
    subject = watchdog(clock)
    began = clock.now
    for _ in range(61):
        clock.now += 1
        subject.heard(Heartbeat(began, "Ready"))
    assert subject.stuck() == "no progress at Ready for 61 s, the limit is 60 s"


QWEN_1_5B = ModelFacts("Qwen2ForCausalLM", 28, 1536, 8960, 12, 2, 128, 151936)


def test_the_limits_are_those_of_the_model_that_is_loaded_and_not_of_the_one_assumed() -> None:
    clock, plan = Clock(), resolve(Features(), GraphRequest())
    assumed, real = Watchdog(plan, clock), Watchdog(plan, clock, QWEN_1_5B)
    for subject in (assumed, real):
        subject.heard(Heartbeat(clock.now, "Capturing"))
    clock.now += 300
    assert assumed.stuck() == "no progress at Capturing for 300 s, the limit is 60 s"
    assert real.stuck() is None


def test_a_start_of_ten_times_its_estimate_that_makes_progress_is_never_stuck() -> None:
    """Each pass of a size, each piece of the weights beats; none of them takes the limit of its stage."""
    clock, plan = Clock(), resolve(Features(), GraphRequest())
    subject, began = Watchdog(plan, clock), clock.now
    estimate = plan.budget.start_seconds
    for stage in ("Import", "Loading", "Capturing", "SelfChecking"):
        ends = clock.now + 10 * estimate
        while clock.now < ends:
            subject.heard(Heartbeat(clock.now, stage))
            clock.now += 59
            assert subject.stuck() is None
    assert clock.now - began > 10 * estimate


def test_weights_are_read_in_pieces_and_each_is_heard(llama_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_destination, "PIECE_BYTES", 4096)
    heard = list[None]()
    whole = load_model(llama_folder, torch.float32, 64)
    pieces = load_model(llama_folder, torch.float32, 64, read=lambda: heard.append(None))
    stored = sum(file.stat().st_size for file in llama_folder.glob("*.safetensors"))
    assert len(heard) > stored / 4096 / 2
    for one, other in zip(whole.module().parameters(), pieces.module().parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.usefixtures("as_written")
def test_pieces_of_weights_and_passes_of_a_size_are_progress(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starter, "ALIVE_SECONDS", 0.0)
    monkeypatch.setattr(tensor_destination, "PIECE_BYTES", 4096)
    reports: list[dict[str, Any]] = started(Policy.Breakable, Policy.Full).reports  # type: ignore[attr-defined]
    loading = [report for report in reports if not any(stage["name"] == "Load" for stage in report["stages"])]
    assert len(loading) > 20
    sizes = 4 + 4
    assert sum(report["state"] == "SelfChecking" for report in reports) > 3 * sizes, "a check has several passes"


@pytest.mark.usefixtures("as_written")
def test_every_stage_compiled_function_captured_size_and_checked_size_is_progress(
    started: Callable[..., Runner],
) -> None:
    """Each report of a start beats, so no stage is silent for longer than its longest part."""
    runner = started(Policy.Piecewise, Policy.Full, compile=CompileMode.Inductor)
    reports: list[dict[str, Any]] = runner.reports  # type: ignore[attr-defined]
    states = Counter(report["state"] for report in reports)
    stages = [len(report["stages"]) for report in reports]
    assert sorted(set(stages)) == list(range(stages[-1] + 1))
    done = Counter(report["stages"][-1]["name"] for report in reports if report["stages"])
    assert done["Buffers"] == 1 + 2, "the stage itself, and each half of a layer"
    assert done["Compile"] == 1 + 1 + 3 + 4, "the stage itself, the state after it, each piece of Piecewise, each size"
    assert states["Capturing"] >= 4 + 2 * 4  # prefill; decode measured, and captured to stay
    assert states["SelfChecking"] >= 4 + 4
