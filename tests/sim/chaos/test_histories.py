"""Random walks through the API, A → B → A → bad → A: where a service stands does not depend on how it came there.

Beside each service that walks stand two that were made as A and as B and left alone; it is compared with them.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pytest

from tests.eventually import Eventually
from tests.places import LABEL, Manifest, service
from tests.sim.chaos import oracles
from tests.sim.chaos.arena import Arena
from tests.sim.chaos.generated import MAY_STOP_PODS, Made, accepted, drawn
from tests.sim.chaos.oracles import State
from tests.sim.conftest import SimPlace
from tests.sim.history import History

pytestmark = pytest.mark.chaos
STILL = 6.0
"""Seconds without a new status after which nothing more will come; details are held back for 5."""
LIMIT = 90.0
LEFT = ("ConfigMap", "ControllerRevision")
"""Kinds of which earlier ones are kept, so that one can go back."""
HISTORY = "generated history"
"""Its name in the counts."""
STEPS = ("a", "b", "a", "bad", "a")
DETOUR = 3
"""The step from which on no pod is touched."""
WRITES_EACH = 16
"""That a transition of one service may take: children, status as its pods come and go, Events."""


@dataclass(frozen=True)
class Walk:
    """Three specs that one service is given in turn. `bad` is one that the operator refuses."""

    name: str
    a: Made
    b: Made
    bad: Made


@dataclass(frozen=True)
class Walks:
    """Services that walk together, and the two places where nothing walks."""

    arena: Arena
    walks: tuple[Walk, ...]
    walking: SimPlace
    as_a: SimPlace
    as_b: SimPlace
    eventually: Eventually
    seed: int

    def go(self, to: str) -> None:
        """Give every service that walks its spec A, B or bad, and wait until it stands where it should."""
        with self.arena.tally.telling(HISTORY, f"to {to}, seed {self.seed}", len(self.walks)):
            self._go(to)

    def _go(self, to: str) -> None:
        mark, began = self.arena.audit.mark(), time.monotonic()
        pods = self.pods()
        apply(self.walking, {walk.name: getattr(walk, to) for walk in self.walks})
        if to == "bad":
            self.eventually(lambda: all(refused(item) for item in self.arena.items(self.walking) if is_service(item)))
            self.eventually(self.arena.idle)
            assert self.pods() == pods, "a spec that is refused touches no pod"
        else:
            twins = self.as_a if to == "a" else self.as_b
            self.eventually(lambda: self.agree(twins), timeout=LIMIT, every=0.5)
        writes, bound = self.arena.writes(self.walking, mark), WRITES_EACH * len(self.walks)
        assert not (told := oracles.excess(writes, bound)), "\n".join(told)
        seconds = time.monotonic() - began
        self.arena.tally.ran(HISTORY, f"to {to}, seed {self.seed}", len(writes), bound, seconds, runs=len(self.walks))

    def agree(self, twins: SimPlace) -> bool:
        """Whether every service that walks stands as its twin does."""
        wanted, found = standing(self.arena.items(twins)), standing(self.arena.items(self.walking))
        left = {name: entry for name, entry in found.items() if name in wanted or name.split()[0] not in LEFT}
        told = oracles.differences(wanted, left)
        assert not told, "\n".join(told)
        return True

    def pods(self) -> set[str]:
        """The uids of all that walk."""
        return {item["metadata"]["uid"] for item in self.arena.items(self.walking) if item["kind"] == "Pod"}


def apply(place: SimPlace, made: dict[str, Made]) -> None:
    items = [service(name, **spec) for name, spec in made.items()]
    place.kubectl(
        "apply", "--server-side", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    )


def is_service(item: Manifest) -> bool:
    return bool(item["kind"] == "InferenceService")


def refused(item: Manifest) -> bool:
    rows = (item.get("status") or {}).get("conditions", ())
    return ("Accepted", "False", item["metadata"]["generation"]) in [
        (row["type"], row["status"], row["observedGeneration"]) for row in rows
    ]


def standing(items: list[Manifest]) -> State:
    """Their state; a status that does not speak of the present spec is none."""
    told = []
    for item in items:
        if is_service(item):
            generation, status = item["metadata"]["generation"], item.get("status") or {}
            rows = [
                {key: value for key, value in row.items() if key != "observedGeneration"}
                for row in status.get("conditions", ())
                if row["observedGeneration"] == generation
            ]
            kept = {key: value for key, value in status.items() if key != "observedGeneration"}
            item = {**item, "spec": filled(item["spec"]), "status": {**kept, "conditions": rows}}
        told.append(item)
    return oracles.state(told)


def filled(value: Any) -> Any:
    """Without what is empty: server-side apply does not bring an empty list back."""
    if not isinstance(value, dict):
        return value
    kept = {key: filled(entry) for key, entry in value.items()}
    return {key: entry for key, entry in kept.items() if entry not in ([], {}, None)}


def at_rest(arena: Arena, *places: SimPlace) -> bool:
    """Whether nothing is under way: no service reconciles, or none has said anything new for a while."""
    deadline, before = time.monotonic() + LIMIT, ""
    since = time.monotonic()
    while time.monotonic() < deadline:
        items = [item for place in places for item in arena.items(place) if is_service(item)]
        rows = [(item.get("status") or {}).get("conditions", ()) for item in items]
        now = json.dumps([item["metadata"]["resourceVersion"] for item in items])
        before, since = now, since if now == before else time.monotonic()
        moving = any(not row or "Reconciling" in {entry["type"] for entry in row} for row in rows)
        if not moving or (time.monotonic() - since > STILL and all(rows)):
            return True
    return False


@contextmanager
def walking(arena: Arena, seed: int, number: int, without: tuple[str, ...]) -> Iterator[Walks]:
    """So many walks or, where no pod of theirs can run, some fewer; at the end no status has lied."""
    specs = drawn(seed, without)
    good = list(islice((spec for spec in specs if accepted(spec)), 2 * number))
    bad = list(islice((spec for spec in specs if not accepted(spec)), number))
    walks = tuple(Walk(f"s{at:03}", good[2 * at], good[2 * at + 1], bad[at]) for at in range(number))
    as_a, as_b, walking = (arena.open_place() for _ in range(3))
    mark, began = arena.audit.mark(), time.monotonic()
    eventually = Eventually(lambda: [arena.cluster], [(arena.cluster, walking.namespace)], [arena.operator.log])
    with (
        History.of(walking) as services,
        History.of(walking, "pod") as pods,
    ):
        apply(as_a, {walk.name: walk.a for walk in walks})
        apply(as_b, {walk.name: walk.b for walk in walks})
        assert at_rest(arena, as_a, as_b), eventually.told()
        kept = tuple(walk for walk in walks if runs(as_a, walk.name) and runs(as_b, walk.name))
        # where an earlier one runs on because the next one cannot, no twin shows what should be
        for name in {walk.name for walk in walks} - {walk.name for walk in kept}:
            for place in (as_a, as_b):
                place.kubectl("delete", "gisvc", name)
        arena.tally.say(f"{len(kept)} of {number} walks from seed {seed} go where pods can run")
        assert kept
        eventually(lambda: all(gone(arena, place, kept) for place in (as_a, as_b)))
        with arena.tally.telling(HISTORY, f"truthful status, seed {seed}", len(kept)):  # a step that fails among them
            yield Walks(arena, kept, walking, as_a, as_b, eventually, seed)
            told = [*oracles.lies(services, pods, arena.witness.heard), *oracles.orphans(arena.items(walking))]
            assert services.seen, "the watch saw the services"
            assert not told, "\n".join(told)
        writes, bound = arena.writes(walking, mark), WRITES_EACH * len(kept) * len(STEPS)
        seconds = time.monotonic() - began
        arena.tally.ran(HISTORY, f"truthful status, seed {seed}", len(writes), bound, seconds, runs=len(kept))


def runs(place: SimPlace, name: str) -> bool:
    """Whether the service serves, or is suspended as it asks."""
    return place.condition("Ready", name)[1] in ("Ready", "Degraded", "Suspended")


def gone(arena: Arena, place: SimPlace, kept: tuple[Walk, ...]) -> bool:
    """Whether only these are left."""
    children = [item for item in arena.items(place) if oracles.ours(item) and not is_service(item)]
    return {item["metadata"]["labels"][LABEL] for item in children} <= {walk.name for walk in kept}


def walk(arena: Arena, seed: int, number: int, without: tuple[str, ...] = ()) -> None:
    with walking(arena, seed, number, without) as walks:
        for to in STEPS[:DETOUR]:
            walks.go(to)
        pods = walks.pods()
        for to in STEPS[DETOUR:]:
            walks.go(to)
        assert walks.pods() == pods, "a detour over a spec that is refused touches no pod"


def test_where_a_service_stands_does_not_depend_on_how_it_came_there(arena: Arena) -> None:
    walk(arena, seed=1, number=2, without=MAY_STOP_PODS)


SEEDS = range(2, 9)
"""Of each, seven or eight of twelve walks go where pods can run, with five steps: more than 200 transitions in all."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_random_walks_end_where_they_should(arena: Arena, seed: int) -> None:
    walk(arena, seed, number=12)
