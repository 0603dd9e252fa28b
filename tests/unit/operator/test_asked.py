"""What a user has just asked for goes before what was merely reported: which news of a service is of that sort."""

from types import SimpleNamespace
from typing import Any

import pytest

from graphpod_operator.cache.key import Key
from graphpod_operator.controller.reconcile import HeldUp
from graphpod_operator.kube.cluster import ServerRefused
from graphpod_operator.kube.resources import Resource
from graphpod_operator.manager import run
from graphpod_operator.telemetry.metrics import Meters
from graphpod_operator.watch.workqueue import KeyQueue
from tests.unit.operator.objects import NAMESPACE, inference_service
from tests.unit.operator.world import KEY, World

OTHER = Key(NAMESPACE, "other")


async def news(metadata: dict[str, Any], status: dict[str, Any]) -> World:
    """A service that is known and in order, then another that waits, then this of the first one."""
    world, before = World(), inference_service()
    world.informer.changed(Resource.InferenceService, before)
    world.queue.done(await world.queue.take())
    world.queue.add(OTHER)
    after = {**before, "metadata": {**before["metadata"], "resourceVersion": "7", **metadata}, "status": status}
    world.informer.changed(Resource.InferenceService, after)
    return world


@pytest.mark.parametrize(
    "metadata",
    [
        {"generation": 2},
        {"annotations": {"graphpod.dev/paused": "true"}},
        {"annotations": {"graphpod.dev/adopt": "0123456789"}},
        {"labels": {"kueue.x-k8s.io/queue-name": "team-a"}},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
    ],
    ids=["spec", "paused", "adopt", "queue", "deleted"],
)
async def test_what_a_user_sets_goes_first_also_where_it_raises_no_generation(metadata: dict[str, Any]) -> None:
    world = await news(metadata, {})
    assert await world.queue.take() == KEY


async def test_what_is_said_in_the_status_waits_its_turn() -> None:
    world = await news({}, {"replicas": 1})
    assert [await world.queue.take(), await world.queue.take()] == [OTHER, KEY]


@pytest.mark.parametrize("held_up", [False, True])
async def test_a_service_that_its_user_changed_while_its_status_was_written_comes_back_first(held_up: bool) -> None:
    async def reconcile(key: Key) -> float | None:
        queue.add(OTHER)
        if held_up:
            raise HeldUp(ServerRefused(422, "no more routes"), 0.0)
        return 0.0

    queue = KeyQueue()
    queue.add(KEY)
    parts = SimpleNamespace(queue=queue, meters=Meters.make(), reconciler=SimpleNamespace(reconcile=reconcile))
    await run._turn(parts, await queue.take())  # type: ignore[arg-type]
    assert [await queue.take(), await queue.take()] == [KEY, OTHER]
