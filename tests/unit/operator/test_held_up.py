"""An object of an optional kind that cannot be written takes nothing else with it: its own condition tells of it."""

from typing import Any

import pytest

from graphpod_operator.controller.reconcile import HeldUp
from graphpod_operator.kube.cluster import ApiError, Conflict, ServerRefused, Terminating, Unavailable
from graphpod_operator.kube.resources import ADDITIONS, Resource
from graphpod_operator.watch.optional_kinds import Gone
from tests.unit.operator.objects import NAMESPACE, inference_service, pod, report
from tests.unit.operator.world import HASH, World

WORDS = 'admission webhook "gateways.example.com" denied the request: no more routes'
ASKED: dict[Resource, tuple[dict[str, Any], str]] = {
    Resource.PodMonitor: ({"monitoring": {"enabled": True}}, "MonitorReady"),
    Resource.ScaledObject: ({"autoscaling": {"provider": "KEDA", "target": 4, "max": 2}}, "ScalingReady"),
    Resource.HTTPRoute: ({"networking": {"route": {"parentRefs": [{"name": "edge"}]}}}, "RouteReady"),
}

SERVING = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}


async def asking(kind: Resource) -> World:
    """A service that asks for an object of this kind, which is served."""
    world = World()
    world.cluster.put(Resource.InferenceService, inference_service(**ASKED[kind][0]))
    world.discovery.served.add(kind)
    await world.relist()
    await world.optional.look()
    return world


def refuse(world: World, kind: Resource, error: ApiError | None) -> None:
    def answer(method: str, resource: Resource) -> None:
        if resource is kind and method == "apply" and error is not None:
            raise error

    world.cluster.refuse = answer


def test_every_kind_without_which_pods_run_is_tried_here() -> None:
    assert set(ASKED) == set(ADDITIONS)


@pytest.mark.parametrize(
    "error", [ServerRefused(422, WORDS), Unavailable(500, WORDS), ServerRefused(403, WORDS)], ids=repr
)
@pytest.mark.parametrize("kind", ADDITIONS, ids=lambda kind: kind.kind)
async def test_its_own_condition_tells_in_the_servers_words_and_the_next_step(kind: Resource, error: ApiError) -> None:
    world, condition = await asking(kind), ASKED[kind][1]
    refuse(world, kind, error)
    with pytest.raises(HeldUp, match="no more routes"):
        await world.reconcile()
    assert world.condition(condition) == ("False", "NotWritten")
    assert WORDS in world.message(condition)
    assert "fix the field that the server names" in world.message(condition)
    assert world.condition("Accepted") == ("True", "Accepted")
    assert (Resource.Deployment, NAMESPACE, "demo") in world.cluster.objects


@pytest.mark.parametrize("error", [ServerRefused(422, WORDS), Unavailable(500, WORDS)], ids=repr)
async def test_a_service_whose_pods_serve_stays_ready(error: ApiError) -> None:
    world = await asking(Resource.HTTPRoute)
    refuse(world, Resource.HTTPRoute, error)
    with pytest.raises(HeldUp):
        await world.reconcile()
    world.cluster.put(Resource.Pod, pod(config_hash=HASH, ready=True))
    deployment = world.deployment
    world.cluster.put(Resource.Deployment, {**deployment, "status": SERVING})
    world.ports.report = report(config_hash=HASH)
    await world.relist()
    with pytest.raises(HeldUp):
        await world.reconcile()
    assert world.condition("Ready") == ("True", "Ready")
    assert world.condition("RouteReady") == ("False", "NotWritten")


async def test_it_is_tried_again_and_what_is_written_then_was_never_put_back() -> None:
    world = await asking(Resource.HTTPRoute)
    refuse(world, Resource.HTTPRoute, ServerRefused(422, WORDS))
    with pytest.raises(HeldUp):
        await world.reconcile()
    refuse(world, Resource.HTTPRoute, None)
    world.cluster.writes.clear()
    await world.reconcile()
    assert world.kinds() == ["HTTPRoute", "status"]
    assert world.condition("RouteReady") == ("Unknown", "RoutePending")
    assert world.put_back == {}


async def test_pods_that_start_meanwhile_are_asked_as_soon_as_ever() -> None:
    world = await asking(Resource.HTTPRoute)
    refuse(world, Resource.HTTPRoute, ServerRefused(422, WORDS))
    world.cluster.put(Resource.Pod, pod(config_hash=HASH))
    world.ports.report = report(config_hash=HASH, state="Capturing")
    await world.relist()
    with pytest.raises(HeldUp) as caught:
        await world.reconcile()
    assert caught.value.pause == 2.0


async def test_a_child_that_is_not_optional_still_stops_the_apply() -> None:
    world = await asking(Resource.HTTPRoute)
    refuse(world, Resource.Service, ServerRefused(422, WORDS))
    with pytest.raises(HeldUp):
        await world.reconcile()
    assert world.condition("Accepted") == ("False", "ApplyRefused")


@pytest.mark.parametrize("error", [Conflict(409, "another writer"), Gone(404, "its kind has gone")], ids=repr)
async def test_what_is_another_way_at_the_next_look_is_raised_at_once(error: ApiError) -> None:
    world = await asking(Resource.HTTPRoute)
    refuse(world, Resource.HTTPRoute, error)
    with pytest.raises(type(error)):
        await world.reconcile()
    assert "status" not in world.kinds()


async def test_a_namespace_that_ends_ends_the_service_too() -> None:
    world = await asking(Resource.HTTPRoute)
    refuse(world, Resource.HTTPRoute, Terminating(403, "it is being terminated"))
    assert await world.reconcile() is None
    assert "status" not in world.kinds()
