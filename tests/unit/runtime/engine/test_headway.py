"""How long a launch waits: until the device has as much left to do as the host needs."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from graphpod_policy import Phase
from graphpod_runtime.engine.headway import LATEST, MARGIN, Headway


class Clock:
    now = 10.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Pass:
    phase: Phase = Phase.Decode
    device_seconds: float = 0.005
    size: int = 8

    @property
    def ran(self) -> Any:
        return SimpleNamespace(phase=self.phase, choice=self.size)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def headway(clock: Clock) -> Headway:
    """Of a device that took 5 ms for a decode pass, which was launched in 1 ms."""
    headway = Headway(clock)
    run(headway, Pass(), 0.001)
    return headway


def run(headway: Headway, one: Pass, launch: float) -> None:
    headway.launched(one, launch)
    headway.landed(one)


def test_with_nothing_in_flight_or_nothing_known_of_it_a_pass_is_launched_at_once(headway: Headway) -> None:
    assert headway.left == 0
    headway.launched(Pass(Phase.Prefill), 0.002)
    assert headway.left == 0


def test_the_launch_waits_until_the_device_is_about_to_be_free(headway: Headway, clock: Clock) -> None:
    headway.launched(Pass(), 0.001)
    assert headway.left == pytest.approx(0.005 - 0.001 - MARGIN)
    clock.now += 0.002
    assert headway.left == pytest.approx(0.003 - 0.001 - MARGIN)
    clock.now += 0.002
    assert headway.left == 0


def test_a_pass_in_line_begins_when_the_one_before_it_has_landed(headway: Headway, clock: Clock) -> None:
    first = Pass()
    headway.launched(first, 0.001)
    clock.now += 0.004
    headway.launched(Pass(), 0.001)
    assert headway.left == 0  # two are in line
    clock.now += 0.001
    headway.landed(first)
    assert headway.left == pytest.approx(0.005 - 0.001 - MARGIN)


def test_the_fastest_pass_and_the_slowest_launch_count(headway: Headway) -> None:
    for seconds, launch in ((0.009, 0.0005), (0.004, 0.002), (0.007, 0.001)):
        run(headway, Pass(device_seconds=seconds), launch)
    headway.launched(Pass(), 0.001)
    assert headway.left == pytest.approx(0.004 - 0.002 - MARGIN)


def test_a_short_wait_is_none(headway: Headway) -> None:
    run(headway, Pass(device_seconds=0.0024), 0.001)
    headway.launched(Pass(), 0.001)
    assert headway.left == 0


def test_the_host_is_as_slow_as_for_any_batch(headway: Headway) -> None:
    run(headway, Pass(size=1), 0.003)
    headway.launched(Pass(), 0.0001)
    assert headway.left == pytest.approx(0.005 - 0.003 - MARGIN)


def test_a_pass_in_segments_does_not_make_the_host_look_slow(headway: Headway) -> None:
    run(headway, Pass(Phase.Prefill), 0.004)
    headway.launched(Pass(), 0.001)
    assert headway.left == pytest.approx(0.005 - 0.001 - MARGIN)


def test_old_passes_are_forgotten(headway: Headway) -> None:
    for _ in range(LATEST):
        run(headway, Pass(device_seconds=0.008), 0.001)
    headway.launched(Pass(), 0.001)
    assert headway.left == pytest.approx(0.008 - 0.001 - MARGIN)
