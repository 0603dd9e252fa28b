"""How long a launch waits: until the device has as much left to do as the host needs."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from graphpod_policy import Phase
from graphpod_runtime.engine.launch_delay import LATEST, MARGIN, LaunchDelay


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
def delay(clock: Clock) -> LaunchDelay:
    """Of a device that took 5 ms for a decode pass, which was launched in 1 ms."""
    delay = LaunchDelay(clock)
    run(delay, Pass(), 0.001)
    return delay


def run(delay: LaunchDelay, one: Pass, launch: float) -> None:
    delay.launched(one, launch)
    delay.landed(one)


def test_with_nothing_in_flight_or_nothing_known_of_it_a_pass_is_launched_at_once(delay: LaunchDelay) -> None:
    assert delay.left == 0
    delay.launched(Pass(Phase.Prefill), 0.002)
    assert delay.left == 0


def test_the_launch_waits_until_the_device_is_about_to_be_free(delay: LaunchDelay, clock: Clock) -> None:
    delay.launched(Pass(), 0.001)
    assert delay.left == pytest.approx(0.005 - 0.001 - MARGIN)
    clock.now += 0.002
    assert delay.left == pytest.approx(0.003 - 0.001 - MARGIN)
    clock.now += 0.002
    assert delay.left == 0


def test_a_pass_in_line_begins_when_the_one_before_it_has_landed(delay: LaunchDelay, clock: Clock) -> None:
    first = Pass()
    delay.launched(first, 0.001)
    clock.now += 0.004
    delay.launched(Pass(), 0.001)
    assert delay.left == 0  # two are in line
    clock.now += 0.001
    delay.landed(first)
    assert delay.left == pytest.approx(0.005 - 0.001 - MARGIN)


def test_the_fastest_pass_and_the_slowest_launch_count(delay: LaunchDelay) -> None:
    for seconds, launch in ((0.009, 0.0005), (0.004, 0.002), (0.007, 0.001)):
        run(delay, Pass(device_seconds=seconds), launch)
    delay.launched(Pass(), 0.001)
    assert delay.left == pytest.approx(0.004 - 0.002 - MARGIN)


def test_a_short_wait_is_none(delay: LaunchDelay) -> None:
    run(delay, Pass(device_seconds=0.0024), 0.001)
    delay.launched(Pass(), 0.001)
    assert delay.left == 0


def test_the_host_is_as_slow_as_for_any_batch(delay: LaunchDelay) -> None:
    run(delay, Pass(size=1), 0.003)
    delay.launched(Pass(), 0.0001)
    assert delay.left == pytest.approx(0.005 - 0.003 - MARGIN)


def test_a_pass_in_segments_does_not_make_the_host_look_slow(delay: LaunchDelay) -> None:
    run(delay, Pass(Phase.Prefill), 0.004)
    delay.launched(Pass(), 0.001)
    assert delay.left == pytest.approx(0.005 - 0.001 - MARGIN)


def test_old_passes_are_forgotten(delay: LaunchDelay) -> None:
    for _ in range(LATEST):
        run(delay, Pass(device_seconds=0.008), 0.001)
    delay.launched(Pass(), 0.001)
    assert delay.left == pytest.approx(0.008 - 0.001 - MARGIN)
