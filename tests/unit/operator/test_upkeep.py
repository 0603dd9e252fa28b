"""A service over time: what is pruned and put back, and what its disruption budget says."""

from typing import Any

import pytest

from graphpod_operator.kube.resources import Resource
from graphpod_operator.render.workload import deployment as render_deployment
from graphpod_operator.revisions.garbage_collection import PRUNE_SECONDS
from tests.unit.operator.objects import NAMESPACE, pod
from tests.unit.operator.world import HASH, KEY, World


async def test_edits_leave_no_more_configurations_and_memories_than_a_rollback_wants(world: World) -> None:
    for size in range(1, 9):
        await world.edit(engine={"maxBatch": size})
        await world.reconcile()
        world.clock.now += PRUNE_SECONDS
    kinds = [kind for kind, _, _ in world.cluster.objects]
    assert kinds.count(Resource.ConfigMap) <= 3
    assert kinds.count(Resource.ControllerRevision) == 3


async def test_nothing_is_deleted_while_a_replica_set_names_it(world: World) -> None:
    for size in range(1, 6):
        await world.edit(engine={"maxBatch": size})
        await world.reconcile()
        template = world.deployment["spec"]["template"]
        old = {"metadata": {"name": f"demo-{size}", "namespace": NAMESPACE}, "spec": {"template": template}}
        world.cluster.put(Resource.ReplicaSet, old)
    assert [kind for kind, _, _ in world.cluster.objects].count(Resource.ConfigMap) == 5
    world.clock.now += PRUNE_SECONDS
    assert await world.reconciler.reconcile(KEY) == PRUNE_SECONDS
    del world.cluster.objects[Resource.ReplicaSet, NAMESPACE, "demo-1"]
    world.clock.now += PRUNE_SECONDS / 2
    assert await world.reconciler.reconcile(KEY) == PRUNE_SECONDS / 2, (
        "what is not watched is not asked for all the time"
    )
    world.clock.now += PRUNE_SECONDS / 2
    await world.reconciler.reconcile(KEY)
    assert [kind for kind, _, _ in world.cluster.objects].count(Resource.ConfigMap) == 4


async def test_a_deployment_changed_by_somebody_is_put_back_with_a_word(world: World) -> None:
    await world.reconcile()
    edited = world.deployment
    edited["metadata"]["managedFields"] = []
    world.write(Resource.Deployment, edited)
    await world.reconcile()
    (said,) = world.told("PutBack")
    assert "kubectl rollout restart is respected" in said


async def test_what_a_newer_operator_makes_otherwise_is_no_change_by_somebody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts that no rendering keeps: it changes them where the spec and the pods stay as they are."""
    await world.reconcile()
    before = world.deployment["spec"]
    monkeypatch.setattr(render_deployment, "rolling", lambda spec: {"maxSurge": 2, "maxUnavailable": 0})
    newer = world.successor()
    await newer.relist()
    await newer.reconcile()
    after = world.deployment["spec"]
    assert before["strategy"] != after["strategy"]
    assert world.told("PutBack") == []
    assert newer.put_back == {}


async def test_a_change_by_somebody_while_the_operator_is_away_is_told_too(world: World) -> None:
    await world.reconcile()
    edited = world.deployment
    edited["metadata"]["managedFields"] = []
    world.cluster.put(Resource.Deployment, edited)
    await world.edit(replicas=3)  # and the spec with it
    newer = world.successor()
    await newer.relist()
    await newer.reconcile()
    assert len(world.told("PutBack")) == 1
    assert newer.put_back == {"Deployment": 1}


async def test_a_child_that_somebody_deleted_is_made_again_and_counted(world: World) -> None:
    await world.reconcile()
    assert world.put_back == {}
    del world.cluster.objects[Resource.Service, NAMESPACE, "demo"]
    await world.relist()
    await world.reconcile()
    assert world.put_back == {"Service": 1}


async def touched(world: World, resource: Resource) -> int:
    """A newer version of an object, in which nothing that is read has changed, told of to an operator without work;
    which version that is."""
    await world.reconcile()
    while world.queue.depth:
        world.queue.done(await world.queue.take())
    raw = world.cluster.objects[resource, NAMESPACE, "demo"]
    newer = int(raw["metadata"]["resourceVersion"]) + 10
    world.informer.changed(resource, raw | {"metadata": {**raw["metadata"], "resourceVersion": str(newer)}})
    return newer


async def test_an_event_that_tells_nothing_that_is_read_gives_nobody_work(world: World) -> None:
    newer = await touched(world, Resource.Service)
    assert world.queue.depth == 0
    child = world.store.child(Resource.Service, NAMESPACE, "demo")
    assert child is not None
    assert child.version == newer, "an older report is to count for nothing"


async def test_a_service_that_somebody_touched_is_looked_at_though_nothing_that_is_read_changed(world: World) -> None:
    await touched(world, Resource.InferenceService)
    assert world.queue.depth == 1


async def test_a_mark_that_somebody_removed_is_set_again(world: World) -> None:
    await world.reconcile()
    world.cluster.writes.clear()
    edited = world.cluster.objects[Resource.Service, NAMESPACE, "demo"]
    del edited["metadata"]["annotations"]
    world.write(Resource.Service, edited)
    await world.reconcile()
    await world.reconcile()
    assert world.cluster.writes == [("Service", "demo")]


async def test_an_edit_of_the_spec_is_no_change_by_somebody(world: World) -> None:
    await world.reconcile()
    await world.edit(engine={"maxBatch": 2})
    await world.reconcile()
    assert world.told("PutBack") == []
    assert world.put_back == {}


async def test_a_budget_comes_with_the_second_replica_and_goes_with_it(world: World) -> None:
    await world.edit(replicas=2)
    await world.reconcile()
    assert (Resource.PodDisruptionBudget, NAMESPACE, "demo") in world.cluster.objects
    await world.edit(replicas=1)
    await world.reconcile()
    await world.reconcile()
    assert world.kinds().count("delete PodDisruptionBudget") == 1
    assert (Resource.PodDisruptionBudget, NAMESPACE, "demo") not in world.cluster.objects


async def test_a_pod_that_goes_on_failing_to_start_may_be_evicted(world: World) -> None:
    await world.edit(replicas=2)
    await world.reconcile()

    def policy() -> str:
        budget = world.cluster.objects[Resource.PodDisruptionBudget, NAMESPACE, "demo"]
        told: str = budget["spec"]["unhealthyPodEvictionPolicy"]
        return told

    assert policy() == "IfHealthyBudget"
    died = {"lastState": {"terminated": {"exitCode": 12, "message": "CaptureFailed: size 4"}}}
    world.cluster.put(Resource.Pod, pod(config_hash=HASH, engine=died, restarts=1))
    await world.relist()
    await world.reconcile()
    assert policy() == "AlwaysAllow"
    assert world.put_back == {}, "nobody changed it"


@pytest.mark.parametrize(
    ("metadata", "status"),
    [({"deletionTimestamp": "2026-01-01T00:00:00Z"}, {}), ({}, {"phase": "Failed", "reason": "Terminated"})],
    ids=["told to end", "gone for good"],
)
async def test_a_pod_that_ended_and_does_not_start_again_leaves_its_budget(
    world: World, metadata: dict[str, Any], status: dict[str, Any]
) -> None:
    await world.edit(replicas=2)
    await world.reconcile()
    world.cluster.writes.clear()
    ended = pod(config_hash=HASH, engine={"state": {"terminated": {"exitCode": 0}}}, status=status)
    ended["metadata"] |= metadata
    world.cluster.put(Resource.Pod, ended)
    await world.relist()
    await world.reconcile()
    assert "PodDisruptionBudget" not in world.kinds()
