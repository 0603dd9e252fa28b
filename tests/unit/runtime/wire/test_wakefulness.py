"""Loops are kept awake where processors are to spare: one for each loop and each driver, and two."""

import os
from pathlib import Path

import pytest

from graphpod_policy import Device, FeatureConfig
from graphpod_runtime.base.process import processors
from graphpod_runtime.wire.wakefulness import AWAKE_SECONDS, awake_seconds


@pytest.mark.parametrize(
    ("features", "needed"),
    [
        (FeatureConfig(device=Device.Cuda), 4),
        (FeatureConfig(device=Device.Cuda, tensor=2), 6),
        (FeatureConfig(device=Device.Cuda, tensor=4, pipeline=2), 18),
        (FeatureConfig(device=Device.Cuda, tensor=4, pipeline=2, nodes=2), 10),
    ],
)
def test_loops_are_kept_awake_with_enough_processors_for_those_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, features: FeatureConfig, needed: int
) -> None:
    monkeypatch.setattr(processors, "QUOTA", tmp_path / "none")
    found = []
    for count in (needed - 1, needed):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, count=count: set(range(count)))
        found.append(awake_seconds(features))
    assert found == [0.0, AWAKE_SECONDS]


def test_on_a_cpu_they_sleep_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    assert awake_seconds(FeatureConfig(device=Device.Cpu)) == 0.0
