"""The memory of a rendering, lost or spoiled: what runs goes on as it was made, also under a newer operator."""

import json
from typing import Any

import pytest

from graphpod_operator.kube.resources import CHILDREN, Resource
from graphpod_operator.render.pod import template as pod_template
from tests.unit.operator.cluster import FakeCluster
from tests.unit.operator.objects import NAMESPACE, inference_service
from tests.unit.operator.world import World

Manifest = dict[str, Any]
SERVICE = Resource.InferenceService, NAMESPACE, "demo"
DEPLOYMENT = Resource.Deployment, NAMESPACE, "demo"


def memories(world: World) -> dict[str, Manifest]:
    return {
        name: manifest
        for (kind, _, name), manifest in world.cluster.objects.items()
        if kind is Resource.ControllerRevision
    }


def template(world: World) -> Manifest:
    made: Manifest = world.deployment["spec"]["template"]
    return made


@pytest.fixture
async def newer(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """An operator that makes pods otherwise, over a service of the operator before it."""
    await world.reconcile()
    monkeypatch.setattr(pod_template, "EXIT_SECONDS", 11)
    return world.successor()


async def test_a_memory_that_is_deleted_under_a_newer_operator_is_made_again_and_restarts_nobody(newer: World) -> None:
    before, ((name, memory),) = template(newer), memories(newer).items()
    del newer.cluster.objects[Resource.ControllerRevision, NAMESPACE, name]
    await newer.settle()
    assert template(newer) == before
    ((again, made),) = memories(newer).items()
    assert again == name
    for kept in ("madeFrom", "engine.json", "workload.json"):
        assert made["data"][kept] == memory["data"][kept]
    assert newer.condition("EngineUpdateAvailable") == ("True", "NewEngine")


async def test_a_memory_deleted_while_it_was_watched_is_made_again_too(newer: World) -> None:
    await newer.settle()
    before, (name,) = template(newer), memories(newer)
    del newer.cluster.objects[Resource.ControllerRevision, NAMESPACE, name]
    newer.cluster.writes.clear()
    await newer.settle()
    assert template(newer) == before
    assert [write for write in newer.cluster.writes if write[0] != "status"] == [("ControllerRevision", name)]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: None,
        lambda data: [],
        lambda data: "text",
        lambda data: {},
        lambda data: {**data, "madeFrom": 7},
        lambda data: {**data, "engine.json": "{"},
        lambda data: {**data, "engine.json": "[]"},
        lambda data: {**data, "engine.json": data["engine.json"].replace(":", ": ", 1)},
        lambda data: {**data, "workload.json": "null"},
        lambda data: {**data, "workload.json": "{}"},
        lambda data: {**data, "workload.json": json.dumps({"template": {"spec": {"containers": []}}})},
    ],
    ids=["nothing", "a list", "text", "empty", "a number", "cut", "no graph", "other bytes", "null", "no pod", "none"],
)
async def test_a_memory_that_holds_something_else_is_told_and_replaced_and_restarts_nobody(
    newer: World, spoil: Any
) -> None:
    before, ((name, memory),) = template(newer), memories(newer).items()
    kept = memory["data"]
    newer.cluster.put(Resource.ControllerRevision, {**memory, "data": spoil(kept)})
    await newer.settle()
    assert template(newer) == before
    assert memories(newer)[name]["data"]["workload.json"] == kept["workload.json"]
    assert len(newer.told("MemoryUnreadable")) == 1
    assert newer.condition("Accepted") == ("True", "Accepted")


async def test_a_memory_that_is_the_same_in_other_bytes_is_that_memory(newer: World) -> None:
    before, ((name, memory),) = template(newer), memories(newer).items()
    spaced = json.dumps(json.loads(memory["data"]["workload.json"]), indent=1)
    newer.cluster.put(Resource.ControllerRevision, {**memory, "data": {**memory["data"], "workload.json": spaced}})
    await newer.settle()
    newer.cluster.writes.clear()
    await newer.settle()
    assert template(newer) == before
    assert list(memories(newer)) == [name]
    assert [write for write in newer.cluster.writes if write[0] != "status"] == []


async def test_a_memory_that_was_in_the_way_is_replaced_at_once(newer: World) -> None:
    """No watch tells of what the operator deleted itself."""
    ((name, memory),) = memories(newer).items()
    newer.cluster.put(Resource.ControllerRevision, {**memory, "data": {}})
    await newer.relist()
    await newer.reconcile()
    assert memories(newer)[name]["data"]["workload.json"] == memory["data"]["workload.json"]


async def test_a_memory_that_something_keeps_from_going_is_waited_for(newer: World) -> None:
    (memory,) = memories(newer).values()
    spoiled = newer.cluster.put(Resource.ControllerRevision, {**memory, "data": {}})

    async def kept(*_: object) -> None:
        spoiled["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    newer.cluster.delete = kept  # type: ignore[method-assign]
    await newer.relist()
    assert await newer.reconcile() is not None
    assert newer.condition("Accepted") == ("Unknown", "PreviousDeleting")


async def test_a_memory_of_no_use_beside_the_good_one_is_told_once_and_left_alone(newer: World) -> None:
    before, (memory,) = template(newer), memories(newer).values()
    bad = {**memory, "metadata": {**memory["metadata"], "name": "demo-bad", "uid": "bad"}, "revision": 99, "data": {}}
    newer.cluster.put(Resource.ControllerRevision, bad)
    await newer.settle()
    newer.cluster.writes.clear()
    await newer.settle()
    assert newer.cluster.writes == []
    assert template(newer) == before
    assert len(newer.told("MemoryUnreadable")) == 1
    assert "demo-bad" in memories(newer)


async def test_a_service_made_anew_takes_its_kept_children_one_by_one_in_whatever_order_and_restarts_nobody(
    newer: World,
) -> None:
    """A memory that is not ours yet is none: what runs proves it until it is."""
    before = template(newer)
    kept = [(place, manifest) for place, manifest in newer.cluster.objects.items() if place[0] in CHILDREN]
    owners = {place: manifest["metadata"].pop("ownerReferences") for place, manifest in kept}
    anew = inference_service()
    anew["metadata"]["uid"] = "anew"
    newer.cluster.objects = {place: newer.cluster.put(place[0], manifest) for place, manifest in kept}
    newer.cluster.put(Resource.InferenceService, anew)
    newer.cluster.writes.clear()
    for place, _ in sorted(kept, key=lambda one: one[0][0] is not Resource.Deployment):
        await newer.settle()
        assert newer.condition("Accepted") == ("False", "OwnerMissing")
        given = newer.cluster.objects[place]
        given["metadata"]["ownerReferences"] = [{**owner, "uid": "anew"} for owner in owners[place]]
        newer.cluster.put(place[0], given)
    await newer.settle()
    assert newer.condition("Accepted") == ("True", "Accepted")
    assert template(newer) == before
    assert [write for write in newer.cluster.writes if write[0] != "status"] == []


@pytest.mark.parametrize("proved", [True, False])
async def test_a_lost_memory_that_may_not_be_written_is_looked_for_once(
    newer: World, proved: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paused service has nothing written, so its memory stays away."""
    before, (name,) = template(newer), memories(newer)
    edited = newer.cluster.objects[SERVICE]
    edited["metadata"]["annotations"] = {"graphpod.dev/paused": "true"}
    newer.cluster.put(Resource.InferenceService, edited)
    if not proved:
        before["spec"]["containers"][0]["image"] = "somebody/elses:image"
        newer.cluster.put(Resource.Deployment, newer.deployment)
    del newer.cluster.objects[Resource.ControllerRevision, NAMESPACE, name]
    await newer.settle()
    assert [record.message for record in caplog.records].count("a memory is gone") == 1
    gets: list[Resource] = []

    async def get(resource: Resource, namespace: str, name: str) -> Manifest | None:
        gets.append(resource)
        return await FakeCluster.get(newer.cluster, resource, namespace, name)

    monkeypatch.setattr(newer.cluster, "get", get)
    await newer.settle()
    assert gets == []
    assert newer.condition("EngineUpdateAvailable")[0] == str(proved)
    edited = newer.cluster.objects[SERVICE]
    del edited["metadata"]["annotations"]
    newer.cluster.put(Resource.InferenceService, edited)
    await newer.settle()
    assert (template(newer) == before) is proved


async def test_a_deployment_that_somebody_changed_proves_nothing(newer: World) -> None:
    live = newer.deployment
    live["spec"]["template"]["spec"]["containers"][0]["image"] = "somebody/elses:image"
    newer.cluster.put(Resource.Deployment, live)
    (name,) = memories(newer)
    del newer.cluster.objects[Resource.ControllerRevision, NAMESPACE, name]
    await newer.settle()
    assert template(newer)["spec"]["containers"][0]["image"] != "somebody/elses:image"
    assert name not in memories(newer)


async def test_a_spec_that_cannot_run_beside_a_lost_memory_is_refused_in_words(newer: World) -> None:
    (name,) = memories(newer)
    del newer.cluster.objects[Resource.ControllerRevision, NAMESPACE, name]
    before = template(newer)
    wrong = inference_service(engine={"maxBatch": "many"})
    newer.cluster.put(Resource.InferenceService, wrong)
    await newer.settle()
    assert newer.condition("Accepted") == ("False", "SpecInvalid")
    assert template(newer) == before
