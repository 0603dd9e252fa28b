"""The operator killed at a write, on either side of it: the next one finishes what was begun."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from stubs.fault import Freeze, Point, Turn
from stubs.kubecall import WRITES, Which
from tests.sim.chaos.arena import Arena, Inject
from tests.sim.chaos.aside import meanwhile
from tests.sim.chaos.scenarios import CREATE, UPDATE, Scenario
from tests.sim.conftest import SimPlace

pytestmark = pytest.mark.chaos
AGAIN = 4
"""Writes that a kill may cost: the one that was cut off, and what the next operator says anew."""
WORDS = {Point.Request: "killed before a write", Point.Answer: "killed after a write"}


def killed_at(point: Point, write: int) -> Inject:
    """Killed while its n-th write waits: not passed on yet, or done and not answered yet."""

    @contextmanager
    def inject(arena: Arena, place: SimPlace) -> Iterator[None]:
        held = arena.proxy.add(Freeze(point), Which(WRITES, namespace=place.namespace), Turn(first=write, times=1))

        def kill() -> None:
            held.reached()
            arena.operator.kill()
            arena.proxy.lift(held)
            arena.operator.start()

        with meanwhile(kill):
            yield

    return inject


@pytest.mark.parametrize(("scenario", "point"), [(CREATE, Point.Request), (UPDATE, Point.Answer)])
def test_a_kill_amid_the_writes_leaves_nothing_undone(arena: Arena, scenario: Scenario, point: Point) -> None:
    middle = arena.normal(scenario).writes // 2
    arena.run(scenario, WORDS[point], killed_at(point, middle), AGAIN)


@pytest.mark.slow
@pytest.mark.parametrize("point", Point, ids=["before", "after"])
@pytest.mark.parametrize("scenario", [CREATE, UPDATE], ids=["create", "update"])
def test_a_kill_at_any_write_leaves_nothing_undone(arena: Arena, scenario: Scenario, point: Point) -> None:
    writes = arena.normal(scenario).writes
    assert writes > 4
    for write in range(1, writes + 1):
        arena.tally.say(f"{scenario.name}: {WORDS[point]}, number {write} of {writes}")
        arena.run(scenario, WORDS[point], killed_at(point, write), AGAIN)
