"""What holds the event loop of the streams shows on /livez, which another thread answers."""

from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from graphpod_runtime.front.health import admin_app
from graphpod_runtime.front.metrics.exporter import Exporter, FrontMetrics
from graphpod_runtime.front.watchdog import FLOOR_SECONDS, SILENT_SECONDS, Watchdog
from graphpod_runtime.wire.messages import Heartbeat

from .conftest import engine_json, first_status


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_first_of_several_ranks_is_named_where_its_heart_is_silent(tmp_path: Path, clock: Clock) -> None:
    plan = first_status(engine_json(tmp_path, tmp_path)).config.resolved()
    alone, first = Watchdog(plan, clock), Watchdog(replace(plan, features=replace(plan.features, tensor=2)), clock)
    for watchdog in (alone, first):
        watchdog.heard(Heartbeat(clock.now, "Ready"))
    clock.now += SILENT_SECONDS + 1
    assert (alone.mute(), alone.stuck()) == (None, None)
    assert first.mute() == first.stuck() == "rank 0 of 2 stands still at Ready: no heartbeat for 21 s"


def test_ranks_of_several_machines_that_do_not_meet_have_a_next_step(tmp_path: Path, clock: Clock) -> None:
    """Their hearts beat, and the libraries that are to connect them say nothing for half an hour."""
    plan = first_status(engine_json(tmp_path, tmp_path)).config.resolved()
    found: list[str | None] = []
    for nodes in (1, 2):
        watchdog = Watchdog(replace(plan, features=replace(plan.features, tensor=2, nodes=nodes)), clock)
        began = clock.now
        clock.now += watchdog.limits["Import"] + 1
        watchdog.heard(Heartbeat(began, "Import"))
        found.append(watchdog.stuck())
    one, several = found
    assert one is not None
    assert one.endswith(f"the limit is {watchdog.limits['Import']:.0f} s")
    assert several is not None
    assert several.startswith(f"{one}; if ranks cannot connect: open all ports between their machines")


def test_a_rank_that_imports_has_the_limit_of_that_stage(tmp_path: Path, clock: Clock) -> None:
    """A library that is loaded holds the interpreter, and with it the heart."""
    plan = first_status(engine_json(tmp_path, tmp_path)).config.resolved()
    first = Watchdog(replace(plan, features=replace(plan.features, tensor=2)), clock)
    clock.now += first.limits["Import"]
    assert first.limits["Import"] > SILENT_SECONDS
    assert (first.mute(), first.stuck()) == (None, None)
    clock.now += 1
    assert (first.mute() or "").startswith("rank 0 of 2 stands still at Import: no heartbeat for")


async def test_a_held_loop_fails_the_liveness_probe_until_it_turns_again(tmp_path: Path, clock: Clock) -> None:
    status = first_status(engine_json(tmp_path, tmp_path))
    status.engine_alive = True
    watchdog = Watchdog(status.config.resolved(), clock)
    app = admin_app(status, watchdog, Exporter(FrontMetrics("echo"), status))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://admin") as client:
        for seconds, turned, code in ((FLOOR_SECONDS, False, 200), (1, False, 503), (0, True, 200)):
            clock.now += seconds
            watchdog.heard(Heartbeat(clock.now, "Ready"))
            if turned:
                watchdog.turned()
            answer = await client.get("/livez")
            assert answer.status_code == code, answer.text
            assert ("served nothing for 61 s" in answer.text) == (code == 503)
