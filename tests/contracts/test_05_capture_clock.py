"""The clock of a capture runs from weights on the device to the last graph instantiated, warm-up and whatever a policy
prepares included, and is the sum of parts that are told. Only the largest size and the smallest are warmed up.
"""

import gc
from collections.abc import Callable
from typing import Any

import pytest

from graphpod_policy import Phase, Policy
from graphpod_runtime.engine.capture.capturer import no_collector
from graphpod_runtime.engine.capture.phase_capture import PhaseCapture
from graphpod_runtime.engine.forward.passes import Code, PrefillPass
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.graphs.capture_errors import CaptureSite
from graphpod_runtime.wire.report import StartStage
from tests.collector import as_in_an_engine


def test_only_the_largest_and_the_smallest_size_are_warmed_up(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    warmed: list[tuple[str, int]] = []
    right = PhaseCapture.warm

    def noting(self: PhaseCapture, site: CaptureSite, *others: Any) -> None:
        warmed.append((site.phase, site.size))
        right(self, site, *others)

    monkeypatch.setattr(PhaseCapture, "warm", noting)
    started(Policy.Breakable, Policy.Full)
    assert warmed == [("prefill", 32), ("prefill", 4), *[("decode", 8), ("decode", 1)] * 2]


def test_the_clock_is_the_sum_of_its_parts(started: Callable[..., Runner]) -> None:
    report = started().report
    clock = report.capture_clock()
    assert list(clock) == ["buffers", "compile", "trace", "warm-up", "graphs", "rest"]
    assert sum(clock.values()) == pytest.approx(
        report.stages[StartStage.Buffers] + report.stages[StartStage.PrefillCapture]
    )
    assert clock["graphs"] == sum(cost.seconds for cost in report.phases[Phase.Prefill].costs) > 0
    assert clock["rest"] >= 0


def test_each_captured_size_is_told_with_what_it_took(started: Callable[..., Runner]) -> None:
    report = started(Policy.Breakable, Policy.Full).report
    for phase, sizes in ((Phase.Prefill, [32, 16, 8, 4]), (Phase.Decode, [8, 4, 2, 1])):
        part = report.phases[phase]
        assert [cost.size for cost in part.costs] == sizes
        assert 0 < sum(cost.pool_bytes for cost in part.costs) == part.pool_bytes
        assert 0 < sum(cost.seconds for cost in part.costs) <= part.capture_seconds


def test_no_collector_runs_during_a_capture_and_it_runs_again_afterwards(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bool, bool]] = []
    right = PrefillPass.code

    def watching(self: PrefillPass, size: int) -> Code:
        seen.append((gc.isenabled(), gc.get_freeze_count() > 0))
        return right(self, size)

    monkeypatch.setattr(PrefillPass, "code", watching)
    with as_in_an_engine():
        started(decode=Policy.Disabled)
        assert gc.get_freeze_count() == 0
    assert (False, True) in seen
    assert gc.isenabled()


def test_what_was_set_aside_before_a_capture_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("freeze", "unfreeze"):
        monkeypatch.setattr(gc, name, lambda name=name: calls.append(name))
    for aside, expected in ((0, ["freeze", "unfreeze"]), (7, [])):
        calls.clear()
        monkeypatch.setattr(gc, "get_freeze_count", lambda aside=aside: aside)
        with no_collector():
            assert not gc.isenabled()
        assert (calls, gc.isenabled()) == (expected, True)
