"""Somebody who changes again and again what the operator puts back: no hot loop, and a word about it."""

from collections.abc import Callable

import pytest

from graphpod_operator.apply.drift_backoff import FREE, LONGEST_PAUSE, QUIET_SECONDS, DriftBackoff
from graphpod_operator.kube.resources import Resource
from tests.unit.operator.objects import NAMESPACE
from tests.unit.operator.world import World

MINUTE = 120  # half seconds


@pytest.fixture
async def world(world: World) -> World:
    """In order, with no write yet."""
    await world.reconcile()
    world.cluster.writes.clear()
    return world


def change_deployment(world: World) -> None:
    edited = world.deployment
    edited["metadata"]["managedFields"] = []
    world.write(Resource.Deployment, edited)


def change_status(world: World) -> None:
    edited = world.service
    edited["status"] = {**edited["status"], "phase": "Refused", "observedGeneration": 0}
    world.write(Resource.InferenceService, edited)


@pytest.mark.parametrize(
    ("change", "what", "later"), [(change_deployment, "Deployment ns/demo", 7), (change_status, "the status", 14)]
)
async def test_a_rival_who_answers_every_write_at_once_is_answered_ever_more_seldom_and_told_of(
    world: World, change: Callable[[World], None], what: str, later: int
) -> None:
    for _ in range(MINUTE):
        change(world)
        await world.reconcile()
    assert FREE < len(world.cluster.writes) <= FREE + later
    (message,) = world.told("Contested")
    assert what in message
    assert "--show-managed-fields" in message


async def test_a_deployment_that_waits_to_be_made_again_under_an_autoscaler_is_not_looked_at_in_a_loop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.edit(autoscaling={"max": 3, "target": 4})
    await world.reconcile()
    looks: list[str] = []
    get = world.cluster.get

    async def counted(resource: Resource, namespace: str, name: str) -> object:
        looks.append(resource.kind)
        assert len(looks) < 20, "it looks again and again"
        return await get(resource, namespace, name)

    monkeypatch.setattr(world.cluster, "get", counted)
    for _ in range(FREE + 1):
        looks.clear()
        del world.cluster.objects[Resource.Deployment, NAMESPACE, "demo"]
        await world.relist()
        pause = await world.reconcile()
    seen = "for the number of pods, before it would be made, and whether its service lives"
    assert looks == ["Deployment", "Deployment", "InferenceService"], seen
    assert pause is not None
    world.clock.now += pause
    await world.reconcile()
    assert (Resource.Deployment, NAMESPACE, "demo") in world.cluster.objects


@pytest.mark.parametrize("change", [change_deployment, change_status])
async def test_what_waits_is_put_back_in_its_time(world: World, change: Callable[[World], None]) -> None:
    for _ in range(FREE + 1):
        change(world)
        pause = await world.reconcile()
    assert len(world.cluster.writes) == FREE
    assert pause is not None
    world.clock.now += pause
    await world.reconcile()
    assert len(world.cluster.writes) == FREE + 1


async def test_changes_far_apart_are_each_put_back_at_once(world: World) -> None:
    for _ in range(3 * FREE):
        change_deployment(world)
        await world.reconcile()
        world.clock.now += QUIET_SECONDS
    assert len(world.cluster.writes) == 3 * FREE
    assert world.told("Contested") == []


async def test_a_field_of_status_that_somebody_else_holds_is_not_written_against_for_ever(world: World) -> None:
    """Server-side apply takes away only what is ours."""
    status = world.service["status"]
    apply = world.cluster.apply_status

    async def beside(body: dict) -> dict:
        raw = await apply(body)
        raw["status"] = {**raw["status"], "lastFailure": {"reason": "Theirs"}}
        return raw

    world.cluster.apply_status = beside  # type: ignore[method-assign]
    edited = world.service
    edited["status"] = {**status, "lastFailure": {"reason": "Theirs"}}
    world.write(Resource.InferenceService, edited)
    for _ in range(100):
        await world.reconcile()
        world.clock.now += 10.0
    assert len(world.cluster.writes) <= 2


def test_the_pause_doubles_to_its_longest() -> None:
    contests, now, pauses = DriftBackoff(), 0.0, []
    for _ in range(FREE + 8):
        pause = contests.wait("it", now)
        now += pause
        pauses.append(pause)
        contests.put_back("it", now)
    assert pauses == [0.0] * FREE + [1.0, 2.0, 4.0, 8.0, 16.0] + [LONGEST_PAUSE] * 3
    assert contests.wait("another", now) == 0.0
