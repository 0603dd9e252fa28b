"""The clock of a capture runs from weights on the device to the last graph instantiated, warm-up and whatever a policy
prepares included, and is the sum of parts that are told. Only the largest size and the smallest are warmed up.
"""

from collections.abc import Callable
from typing import Any

import pytest

from graphpod_policy import Phase, Policy
from graphpod_runtime.engine.capture import PhaseGraphs
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.graphs.breakable import Site


def test_only_the_largest_and_the_smallest_size_are_warmed_up(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    warmed: list[tuple[str, int]] = []
    right = PhaseGraphs.warm

    def noting(self: PhaseGraphs, site: Site, *others: Any) -> None:
        warmed.append((site.phase, site.size))
        right(self, site, *others)

    monkeypatch.setattr(PhaseGraphs, "warm", noting)
    started(Policy.Breakable, Policy.Full)
    assert warmed == [("prefill", 32), ("prefill", 4), *[("decode", 8), ("decode", 1)] * 2]


def test_the_clock_holds_every_size_and_more_and_is_part_of_its_stage(started: Callable[..., Runner]) -> None:
    runner = started(Policy.Breakable, Policy.Disabled)
    report = runner.report
    name = "graphpod_graph_capture_duration_seconds"
    sizes = sum(sample.value for sample in runner.counters.snapshot() if sample.name == name)
    stages = {stage["name"]: stage["seconds"] for stage in report.as_dict()["stages"]}
    assert 0 < sizes < report.phases[Phase.Prefill].capture_seconds
    assert report.phases[Phase.Prefill].capture_seconds <= stages["PrefillCapture"] + 1e-3
