"""The main loop's pulse: what asks for a restart, as any thread sees it."""

import asyncio

import pytest

from graphpod_operator.manager import health
from graphpod_operator.manager.health import LOOP_LATE_SECONDS, PULSE_SECONDS, Pulse


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def beats(pulse: Pulse, times: int) -> None:
    beating = asyncio.create_task(pulse.beat())
    for _ in range(2 * times):
        await asyncio.sleep(0)
    beating.cancel()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PULSE_SECONDS", 0.0)


async def test_a_loop_that_does_nothing_is_noticed_from_outside_once_it_is_late(at_once: None) -> None:
    time = Time()
    pulse = Pulse(lambda: None, time)
    time.now += 3600
    assert pulse.trouble() is None, "before its first beat nothing is due"
    await beats(pulse, 1)
    time.now += LOOP_LATE_SECONDS
    assert pulse.trouble() is None
    time.now += PULSE_SECONDS
    assert pulse.trouble() == "the event loop is 11 s late"
    await beats(pulse, 2)
    assert pulse.trouble() is None


async def test_what_the_main_loop_found_is_left_at_each_beat(at_once: None) -> None:
    found = ["one key has been worked on for 301 s", None]
    pulse = Pulse(lambda: found[0], Time())
    assert pulse.trouble() is None
    await beats(pulse, 2)
    assert pulse.trouble() == found.pop(0)
    await beats(pulse, 2)
    assert pulse.trouble() is None
