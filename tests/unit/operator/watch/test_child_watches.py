"""Watches that go on where a list ended: cut, forgotten, refused, and of a kind that comes and goes."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from graphpod_operator.kube.cluster import ApiError, Expired, Raw, ServerRefused, Unavailable
from graphpod_operator.kube.resources import Resource
from graphpod_operator.watch import child_watches
from graphpod_operator.watch.child_watches import FOLLOWED, ChildWatches, Tell
from tests.unit.operator.objects import NAMESPACE
from tests.unit.operator.world import World

KIND = Resource.ConfigMap
Told = tuple[str, Raw]


class Ended(Exception):
    """The script has no further line."""


class Script:
    """Watches that tell a script, line by line: events, and how each watch ends (None: as usual)."""

    def __init__(self, *lines: tuple[list[Told], ApiError | None]) -> None:
        self.lines = list(lines)
        self.since: list[int] = []

    async def watch(self, resource: Resource, namespace: str | None, selector: str, since: int, tell: Tell) -> None:
        assert (namespace, selector) == (None, "app.kubernetes.io/managed-by=graphpod")
        self.since.append(since)
        if not self.lines:
            raise Ended
        events, error = self.lines.pop(0)
        for event in events:
            tell(*event)
        if error is not None:
            raise error


def config_map(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": NAMESPACE, "uid": name, "resourceVersion": str(version)}}


def bookmark(version: int) -> Told:
    return "BOOKMARK", {"metadata": {"resourceVersion": str(version)}}


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long it waited, without waiting."""
    slept: list[float] = []

    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    monkeypatch.setattr(child_watches.asyncio, "sleep", noted)  # type: ignore[attr-defined]
    return slept


Run = Callable[[Script], Any]


@pytest.fixture
async def run(world: World) -> Run:
    """Follow one kind until the script's end."""
    await world.relist()

    async def to_the_end(script: Script, kind: Resource = KIND) -> int:
        failed = 0

        def count() -> None:
            nonlocal failed
            failed += 1

        follower = ChildWatches(script, world.cluster, world.informer, (), world.optional, count)
        with pytest.raises(Ended):
            await follower.follow(kind, None)
        return failed

    return to_the_end


def names(world: World) -> set[str]:
    return {item.name for item in world.store.all(KIND)}  # type: ignore[union-attr]


async def test_it_goes_on_from_the_list_then_from_what_was_told_last(world: World, run: Run, pauses) -> None:
    listed = world.informer.since(KIND, None)
    events = [("ADDED", config_map("a", listed + 5)), ("ADDED", config_map("b", listed + 7))]
    script = Script((events, None), ([("DELETED", config_map("a", listed + 9)), bookmark(listed + 20)], None))
    assert await run(script) == 0
    assert script.since == [listed, listed + 7, listed + 20]
    assert names(world) == {"b"}
    assert pauses == []


async def test_a_watch_that_ends_well_but_at_once_is_paused_like_one_that_failed(run: Run, pauses) -> None:
    await run(Script(*[([], None)] * 4))
    assert pauses == [0.5, 1.0, 2.0, 4.0]


async def test_a_watch_that_was_silent_for_long_is_opened_again_at_once(
    run: Run, pauses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_watches, "BRIEF_SECONDS", 0.0)
    await run(Script(*[([], None)] * 4))
    assert pauses == []


async def test_a_watch_that_was_cut_goes_on_after_a_pause_that_grows_and_is_short_again_after_news(
    world: World, run: Run, pauses
) -> None:
    cut, told = Unavailable(0, "cut"), [bookmark(1)]
    assert await run(Script(*[([], cut)] * 5, (told, cut))) == 0, "that it does not answer is no error of the server's"
    assert pauses == [0.5, 1.0, 2.0, 4.0, 4.0, 0.5]


@pytest.mark.parametrize("error", [Expired(410, "too old"), Unavailable(500, "etcd")], ids=str)
async def test_what_is_forgotten_is_listed_again_and_what_was_deleted_meanwhile_is_found(
    world: World, run: Run, pauses, error: ApiError
) -> None:
    world.informer.changed(KIND, config_map("gone", 101))
    script = Script(([], error), ([], None))
    await run(script)
    assert names(world) == set()
    assert script.since[1] == script.since[2] == world.informer.since(KIND, None) > script.since[0]


async def test_a_list_that_fails_is_tried_again_before_the_watch(
    world: World, run: Run, pauses, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing, refusals = world.cluster.list, [Unavailable(0, "no answer"), Unavailable(429, "later")]

    async def troubled(*what: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return await listing(*what)

    monkeypatch.setattr(world.cluster, "list", troubled)
    script = Script(([], Expired(410, "too old")))
    assert await run(script) == 1, "429 is the server's word; 410 and no answer are none"
    assert len(script.since) == 2
    assert pauses == [0.5, 1.0, 2.0]


@pytest.mark.parametrize(("kind", "looks"), [(KIND, 0), (Resource.PodMonitor, 8)], ids=str)
async def test_a_refused_watch_is_tried_seldom_and_the_optional_kinds_are_looked_for(
    world: World, run: Run, pauses, monkeypatch: pytest.MonkeyPatch, kind: Resource, looks: int
) -> None:
    world.discovery.served.add(Resource.PodMonitor)
    await world.optional.look()
    asked: list[None] = []
    monkeypatch.setattr(world.optional, "soon", lambda: asked.append(None))
    ends = [([], ServerRefused(403, "no right to watch"))] * 8
    assert await run(Script(*ends), kind) == 8
    assert max(pauses) == child_watches.LONGEST_REFUSED
    assert len(asked) == looks


async def test_an_optional_kind_is_followed_while_it_is_there(world: World, run: Run) -> None:
    assert Resource.PodMonitor in FOLLOWED
    script = Script()
    following = asyncio.create_task(run(script, Resource.PodMonitor))
    await asyncio.sleep(0)
    assert script.since == []
    world.discovery.served.add(Resource.PodMonitor)
    await world.optional.look()
    await following
    assert script.since == [world.informer.since(Resource.PodMonitor, None)]


async def test_an_optional_kind_that_goes_and_comes_back_is_followed_from_its_new_list(
    world: World, run: Run, pauses
) -> None:
    monitors = Resource.PodMonitor
    world.discovery.served.add(monitors)
    await world.optional.look()
    first = world.informer.since(monitors, None)
    script = Script(*[([], ServerRefused(404, "not found"))] * 20)
    world.discovery.served.clear()
    following = asyncio.create_task(run(script, monitors))
    for _ in range(9):
        await asyncio.sleep(0)
    assert script.since[0] == first
    await world.optional.look()
    for _ in range(9):
        await asyncio.sleep(0)
    told = len(script.since)
    for _ in range(9):
        await asyncio.sleep(0)
    assert len(script.since) == told, "it waits while the kind is gone"
    world.discovery.served.add(monitors)
    await world.optional.look()
    await following
    assert script.since[-1] == world.informer.since(monitors, None) > first


def test_every_kind_and_namespace_is_followed_but_services(world: World) -> None:
    follower = ChildWatches(Script(), world.cluster, world.informer, ("a", "b"), world.optional)
    coroutines = follower.all()
    for coroutine in coroutines:
        coroutine.close()
    assert len(coroutines) == 2 * len(FOLLOWED)
    assert {*FOLLOWED, Resource.InferenceService} > {*world.optional.watched}
