"""Children against an API server in memory: what is looked at live before a write, and what is left alone."""

import copy
from typing import Any

import pytest

from graphpod_operator.controller.reconcile import HeldUp
from graphpod_operator.kube.cluster import Conflict, ServerRefused
from graphpod_operator.kube.resources import Resource
from graphpod_operator.watch.informer import Listed
from tests.unit.operator.objects import NAMESPACE, inference_service
from tests.unit.operator.world import KEY, World


async def test_a_child_the_watch_has_not_told_of_is_looked_at_before_it_is_made(world: World) -> None:
    await world.reconcile()
    world.cluster.writes.clear()
    world.informer.listed(Listed(Resource.Service, None, (), version=10**9))
    await world.reconcile()
    assert world.cluster.writes == []


async def test_a_users_object_in_the_way_stops_everything_before_the_first_write(world: World) -> None:
    theirs = world.cluster.put(Resource.Deployment, {"metadata": {"name": "demo", "namespace": NAMESPACE}})
    pause = await world.reconcile()
    assert pause is not None
    assert world.kinds() == ["status"]
    assert world.condition("Accepted") == ("False", "NameCollision")
    assert world.deployment == theirs


async def test_an_object_that_appears_between_look_and_apply_is_not_taken_over(world: World) -> None:
    def intrude(method: str, resource: Resource) -> None:
        if resource is Resource.Service and method == "apply":
            world.cluster.put(Resource.Service, {"metadata": {"name": "demo", "namespace": NAMESPACE}})

    world.cluster.refuse = intrude
    with pytest.raises(Conflict):
        await world.reconcile()
    world.cluster.refuse = lambda method, resource: None
    await world.reconcile()
    assert world.condition("Accepted") == ("False", "NameCollision")
    assert b'graphpod_operator_apply_conflicts_total{kind="Service"} 1.0' in world.meters.text()


async def test_a_repair_means_the_object_it_saw_and_never_its_successor(world: World) -> None:
    await world.reconcile()
    edited = world.cluster.objects[Resource.Service, NAMESPACE, "demo"]
    edited["metadata"]["managedFields"] = []
    world.write(Resource.Service, edited)
    world.cluster.put(Resource.Service, {"metadata": {"name": "demo", "namespace": NAMESPACE, "uid": "successor"}})
    with pytest.raises(Conflict):
        await world.reconcile()
    await world.reconcile()
    assert world.condition("Accepted") == ("False", "NameCollision")


async def test_a_server_that_changes_our_fields_does_not_make_a_loop(world: World) -> None:
    def normalise(stored: dict[str, Any]) -> None:
        if stored["kind"] == "Service":
            stored["spec"]["type"] = "Normalised"

    world.cluster.normalise = normalise
    await world.reconcile()
    world.cluster.writes.clear()
    await world.reconcile()
    assert world.cluster.writes == []


async def test_fields_that_admission_changes_are_named_by_one_event(world: World) -> None:
    def policies(stored: dict[str, Any]) -> None:
        if stored["kind"] == "Deployment":
            stored["spec"]["template"]["spec"]["containers"][0]["image"] = "mirror.example/runtime:1"
        if stored["kind"] == "Service":
            stored["metadata"]["labels"]["team"] = "one"
            del stored["metadata"]["labels"]["app.kubernetes.io/name"]

    world.cluster.normalise = policies
    await world.reconcile()
    (told,) = world.told("ChangedAtAdmission")
    assert "Deployment demo: spec.template.spec.containers[engine].image" in told
    assert "Service demo: metadata.labels.app.kubernetes.io/name" in told
    assert "kubectl get mutatingwebhookconfigurations" in told
    await world.reconcile()
    assert len(world.told("ChangedAtAdmission")) == 1

    world.cluster.writes.clear()
    world.reconciler = world.make_reconciler()
    await world.reconcile()
    assert "Deployment" in world.kinds()
    assert world.told("PutBack") == []
    assert b'graphpod_operator_drift_corrections_total{kind="Deployment"} 0.0' in world.meters.text()


async def test_a_refused_child_is_told_with_the_servers_words_and_tried_again(world: World) -> None:
    def refuse(method: str, resource: Resource) -> None:
        if resource is Resource.Deployment:
            raise ServerRefused(422, "spec.template: no good")

    world.cluster.refuse = refuse
    with pytest.raises(HeldUp, match="no good"):
        await world.reconcile()
    assert world.condition("Accepted") == ("False", "ApplyRefused")
    world.cluster.refuse = lambda method, resource: None
    await world.reconcile()
    assert world.condition("Accepted") == ("True", "Accepted")


@pytest.mark.parametrize("what", ["gone", "made-anew", "deleting"])
async def test_children_that_vanish_with_their_service_are_not_made_anew_before_its_end_is_told(
    world: World, what: str
) -> None:
    """The watches of children and of services are two: what the one tells may come before what the other does."""
    await world.reconcile()
    world.cluster.writes.clear()
    place = Resource.InferenceService, KEY.namespace, KEY.name
    service = world.cluster.objects.pop(place)
    if what == "made-anew":
        world.cluster.put(place[0], inference_service() | {"metadata": {**service["metadata"], "uid": "another"}})
    elif what == "deleting":
        metadata = {**service["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        world.cluster.put(place[0], service | {"metadata": metadata})
    world.informer.deleted(Resource.Service, world.cluster.objects.pop((Resource.Service, KEY.namespace, KEY.name)))
    with pytest.raises(Conflict, match="was deleted"):
        await world.reconcile()
    assert await world.reconcile() is None
    assert world.cluster.writes == []


@pytest.mark.parametrize("written", [False, True], ids=["by version", "by generation"])
async def test_what_vanished_with_all_that_is_newer_than_a_backup_is_made_by_the_spec_of_the_backup(
    world: World, written: bool
) -> None:
    """etcd was restored. By its version the service that is known passes for the newer one, until somebody writes."""
    place = Resource.InferenceService, KEY.namespace, KEY.name
    old = copy.deepcopy(world.cluster.objects[place])
    edited = {**old, "spec": inference_service(replicas=3)["spec"]}
    world.cluster.put(place[0], {**edited, "metadata": {**old["metadata"], "generation": 2}})
    await world.relist()
    await world.reconcile()
    budget = Resource.PodDisruptionBudget, KEY.namespace, KEY.name
    world.cluster.objects[place] = old
    if written:
        world.cluster.put(place[0], old)
    world.informer.deleted(budget[0], world.cluster.objects.pop(budget))
    world.cluster.writes.clear()
    with pytest.raises(Conflict, match="was put back"):
        await world.reconcile()
    assert world.cluster.writes == []
    await world.reconcile()
    assert budget not in world.cluster.objects
    assert world.cluster.objects[Resource.Deployment, KEY.namespace, KEY.name]["spec"]["replicas"] == 1


async def test_pods_do_not_roll_to_a_spec_that_is_newer_than_the_backup(world: World) -> None:
    """The Deployment that was put back is written by its controller, and so believed before its service is."""
    places = [(kind, KEY.namespace, KEY.name) for kind in (Resource.InferenceService, Resource.Deployment)]
    await world.reconcile()
    service, deployment = (copy.deepcopy(world.cluster.objects[place]) for place in places)
    edited = {**service, "spec": inference_service(engine={"maxBatch": 3})["spec"]}
    world.cluster.put(places[0][0], {**edited, "metadata": {**service["metadata"], "generation": 2}})
    await world.relist()
    await world.reconcile()
    world.cluster.objects[places[0]] = service
    world.write(places[1][0], deployment)
    world.cluster.writes.clear()
    with pytest.raises(Conflict, match="was put back"):
        await world.reconcile()
    assert world.cluster.writes == []
    await world.reconcile()
    assert (Resource.Deployment.kind, KEY.name) not in world.cluster.writes


async def test_an_edit_that_a_look_at_the_service_found_is_left_to_the_watch(world: World) -> None:
    """Taken in by the look, it would be known when the watch tells of it, and nobody would be queued."""
    await world.reconcile()
    place = Resource.InferenceService, KEY.namespace, KEY.name
    edited = world.cluster.put(
        place[0], {**world.cluster.objects[place], "spec": inference_service(replicas=3)["spec"]}
    )
    world.informer.deleted(Resource.Service, world.cluster.objects.pop((Resource.Service, KEY.namespace, KEY.name)))
    await world.reconcile()
    while world.queue.depth:
        world.queue.done(await world.queue.take())
    world.informer.changed(place[0], edited)
    assert world.queue.depth == 1


async def test_an_object_made_after_the_look_is_a_collision_and_stays_as_it_is(world: World) -> None:
    theirs = {"metadata": {"name": "demo", "namespace": NAMESPACE}, "spec": {"ports": [{"port": 1}]}}
    look, made = world.cluster.get, []

    async def get(resource: Resource, namespace: str, name: str) -> Any:
        found = await look(resource, namespace, name)
        if resource is Resource.Service and not made:
            made.append(world.cluster.put(Resource.Service, theirs))
        return found

    world.cluster.get = get  # type: ignore[method-assign]
    with pytest.raises(Conflict):
        await world.reconcile()
    assert world.cluster.objects[Resource.Service, NAMESPACE, "demo"] == made[0]
    await world.reconcile()
    assert world.condition("Accepted") == ("False", "NameCollision")
    assert world.cluster.objects[Resource.Service, NAMESPACE, "demo"] == made[0]
    del world.cluster.objects[Resource.Service, NAMESPACE, "demo"]
    await world.reconcile()
    assert world.condition("Accepted") == ("True", "Accepted")
