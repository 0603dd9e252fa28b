"""The operator killed at a write, on either side of it: the next one finishes what was begun."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from stubs.faults.fault import Freeze, Point, Turn
from stubs.kubecall import WRITES, Which
from tests.sim.chaos.arena import Arena, Inject
from tests.sim.chaos.aside import meanwhile
from tests.sim.chaos.breaking import pause
from tests.sim.chaos.scenarios import CREATE, UPDATE, Scenario
from tests.sim.chaos.tally import NotTried
from tests.sim.conftest import SimPlace

pytestmark = pytest.mark.chaos
AGAIN = 4
"""Writes that a kill may cost: the one that was cut off, and what the next operator says anew."""
WORDS = {Point.Request: "killed before write", Point.Answer: "killed after write"}
PART = 4
"""Writes of one test."""
ALWAYS = 4
"""Writes that every run has: how many more say the status depends on how fast the pods come."""


def killed_at(point: Point, write: int) -> Inject:
    """Killed while its n-th write waits: not passed on yet, or done and not answered yet. Raises NotTried when
    the run ends with fewer writes."""

    @contextmanager
    def inject(arena: Arena, place: SimPlace) -> Iterator[None]:
        held = arena.proxy.add(Freeze(point), Which(WRITES, namespace=place.namespace), Turn(first=write, times=1))

        def kill() -> None:
            while not held.hits:
                if held.lifted:
                    raise NotTried
                pause(0.01)
            arena.operator.kill()
            arena.proxy.lift(held)
            arena.operator.start()

        with meanwhile(kill):
            try:
                yield
            finally:
                if not held.hits:
                    arena.proxy.lift(held)

    return inject


@pytest.mark.parametrize(("scenario", "point"), [(CREATE, Point.Request), (UPDATE, Point.Answer)])
def test_a_kill_amid_the_writes_leaves_nothing_undone(arena: Arena, scenario: Scenario, point: Point) -> None:
    middle = arena.normal(scenario).writes // 2
    arena.run(scenario, f"{WORDS[point]} {middle}", killed_at(point, middle), AGAIN)


@pytest.mark.slow
@pytest.mark.parametrize("first", [1, 1 + PART, 1 + 2 * PART, 1 + 3 * PART])
@pytest.mark.parametrize("point", Point, ids=["before", "after"])
@pytest.mark.parametrize("scenario", [CREATE, UPDATE], ids=["create", "update"])
def test_a_kill_at_any_write_leaves_nothing_undone(arena: Arena, scenario: Scenario, point: Point, first: int) -> None:
    """Each test a few writes, so that one that fails hides few."""
    for write in range(first, first + PART):
        try:
            arena.run(scenario, f"{WORDS[point]} {write}", killed_at(point, write), AGAIN)
        except NotTried:
            assert write > ALWAYS
            arena.tally.say(f"{scenario.name}: there was no write {write}")
            break
    else:
        assert first <= 1 + 2 * PART, "the writes come to an end"
