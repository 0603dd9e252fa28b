"""A rollout that replaces: the new pod waits for the GPU of the old one, which is no fault of anything."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from graphpod_operator.cache.leaving_pods import LATE_SECONDS, SETTLE_SECONDS
from graphpod_operator.kube.resources import Resource
from tests.unit.operator.objects import NAMESPACE, pod
from tests.unit.operator.world import HASH, World

NO_GPU = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: none"
GONE_BY = "2026-01-01T00:00:45Z"


def with_gpu(name: str, config_hash: str, **made: Any) -> dict[str, Any]:
    raw = pod(name, config_hash, **made)
    engine = {"name": "engine", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {**raw, "spec": {"containers": [engine]}}


def old() -> dict[str, Any]:
    raw = with_gpu("demo-old", "earlier")
    raw["metadata"] |= {"deletionTimestamp": GONE_BY, "deletionGracePeriodSeconds": 45}
    raw["spec"]["nodeName"] = "node-1"
    return raw


def new() -> dict[str, Any]:
    row = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": NO_GPU}
    return with_gpu("demo-new", HASH, running=False, status={"conditions": [row]})


@pytest.fixture
async def rolling(world: World) -> World:
    """A service whose old pod drains while its new one has no node."""
    await world.settle()
    world.clock.now = 1020.0  # at the timestamp 00:00:00
    world.write(Resource.Pod, old())
    world.write(Resource.Pod, new())
    await world.reconcile()
    return world


def warned(world: World) -> list[str]:
    return [event["reason"] for event in world.cluster.events if event["type"] == "Warning"]


async def leave(world: World) -> None:
    del world.cluster.objects[Resource.Pod, NAMESPACE, "demo-old"]
    await world.relist()


async def test_the_new_pod_waits_for_the_gpu_of_the_old_one(rolling: World) -> None:
    for kind in ("Scheduled", "WorkloadAvailable", "Ready"):
        assert rolling.condition(kind) == ("False", "PreviousDraining")
    words = "pod demo-new: waits for 1 nvidia.com/gpu that pod demo-old holds until it has gone; wait: it drains for "
    assert rolling.message("Ready").startswith(words)
    assert "lastFailure" not in rolling.service["status"]
    assert rolling.service["status"]["phase"] == "Starting"
    assert warned(rolling) == []


async def test_it_is_unschedulable_if_the_scheduler_finds_no_node_after_that(rolling: World) -> None:
    await leave(rolling)
    pause = await rolling.reconcile()
    assert rolling.condition("Ready") == ("False", "PreviousDraining")
    assert pause is not None
    assert pause <= SETTLE_SECONDS
    rolling.clock.now += pause
    await rolling.reconcile()
    for kind in ("Scheduled", "WorkloadAvailable", "Ready"):
        assert rolling.condition(kind) == ("False", "Unschedulable")
    assert warned(rolling) == ["Unschedulable"]


async def test_an_old_pod_that_never_goes_is_waited_for_until_its_grace_period_is_long_over(rolling: World) -> None:
    late = datetime.fromisoformat(GONE_BY) + timedelta(seconds=LATE_SECONDS)
    rolling.clock.timestamp = lambda: (late - timedelta(seconds=1)).isoformat()  # type: ignore[method-assign]
    await rolling.reconcile()
    assert rolling.condition("Scheduled") == ("False", "PreviousDraining")
    rolling.clock.timestamp = late.isoformat  # type: ignore[method-assign]
    await rolling.reconcile()
    assert rolling.condition("Scheduled") == ("False", "Unschedulable")


async def test_the_next_operator_says_the_same_while_the_old_pod_drains(rolling: World) -> None:
    writes = len(rolling.cluster.writes)
    successor = rolling.successor()
    successor.clock.now = 1020.0
    await successor.relist()
    await successor.reconcile()
    assert len(rolling.cluster.writes) == writes


async def test_a_new_pod_that_a_quota_keeps_out_waits_for_the_quota_of_the_old_one(rolling: World) -> None:
    del rolling.cluster.objects[Resource.Pod, NAMESPACE, "demo-new"]
    message = 'pods "demo-x" is forbidden: exceeded quota: team, requested: pods=1, used: pods=1, limited: pods=1'
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
    rolling.deployment["status"] = {"observedGeneration": 9, "conditions": [failure]}
    rolling.cluster.put(Resource.Deployment, rolling.deployment)
    await rolling.relist()
    await rolling.reconcile()
    assert rolling.condition("WorkloadAvailable") == ("False", "PreviousDraining")
    assert rolling.message("Ready").startswith("a new pod waits for the quota of pod demo-old: exceeded quota: team")
    assert "lastFailure" not in rolling.service["status"]
    await leave(rolling)
    await rolling.reconcile()
    rolling.clock.now += SETTLE_SECONDS
    await rolling.reconcile()
    assert rolling.condition("WorkloadAvailable") == ("False", "QuotaExceeded")
