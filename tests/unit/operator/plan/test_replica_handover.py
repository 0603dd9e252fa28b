"""Who decides on the number of pods: it passes on without a pod less, wherever an operator ends on the way."""

import asyncio
from typing import Any

import pytest

from graphpod_operator.api.lifecycle import ScalingMetric
from graphpod_operator.apply.drift_backoff import FREE
from graphpod_operator.kube.cluster import Conflict, Unavailable
from graphpod_operator.kube.resources import AUTOSCALERS, Resource
from graphpod_operator.render.scaling import METRICS
from graphpod_operator.watch.optional_kinds import OptionalKinds
from graphpod_policy import metrics
from tests.unit.operator.objects import NAMESPACE, inference_service
from tests.unit.operator.world import KEY, PROMETHEUS, World

Spec = dict[str, Any]

HPA: Spec = {"autoscaling": {"min": 2, "max": 20, "target": 4}}
FIXED: Spec = {"replicas": 8}
SUSPENDED: Spec = {**HPA, "suspend": True}
KEDA: Spec = {"autoscaling": {**HPA["autoscaling"], "provider": "KEDA"}}
STEPS = {
    "over": (FIXED, HPA),
    "back": (HPA, FIXED),
    "suspended": (HPA, {**FIXED, "suspend": True}),
    "to another kind": (HPA, KEDA),
    "and back": (KEDA, HPA),
    "back from there": (KEDA, FIXED),
}


def replicas(world: World) -> int:
    count: int = world.deployment["spec"]["replicas"]
    return count


def autoscalers(world: World) -> list[str]:
    return [kind.kind for kind, _, _ in world.cluster.objects if kind in AUTOSCALERS]


async def successor(world: World) -> World:
    """Another operator, which knows what a list tells."""
    other = World()
    other.cluster, other.discovery = world.cluster, world.discovery
    other.optional = OptionalKinds(other.discovery, other.cluster, other.informer)
    await other.optional.look()
    other.reconciler = other.make_reconciler()
    await other.relist()
    return other


async def scaled(world: World, count: int) -> None:
    """The autoscaler writes a number."""
    world.cluster.claim_replicas(world.deployment, count, "kube-controller-manager")
    await world.relist()


def watched(world: World) -> list[int]:
    """Every number of pods that is ever written from now on."""
    seen: list[int] = []
    put = world.cluster.put

    def record(resource: Resource, manifest: dict[str, Any]) -> dict[str, Any]:
        if resource is Resource.Deployment:
            seen.append(manifest["spec"]["replicas"])
        return put(resource, manifest)

    world.cluster.put = record  # type: ignore[method-assign]
    return seen


async def test_a_service_with_an_autoscaler_begins_with_the_fewest_pods_and_claims_them_no_more(world: World) -> None:
    await world.edit(**HPA)
    await world.reconcile()
    assert (replicas(world), autoscalers(world)) == (2, ["HorizontalPodAutoscaler"])
    assert "replicas" not in world.deployment["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]
    world.cluster.writes.clear()
    await world.reconcile()
    assert world.cluster.writes == []


async def test_what_an_autoscaler_decides_is_left_alone(world: World) -> None:
    await world.edit(**HPA)
    await world.reconcile()
    await scaled(world, 7)
    world.cluster.writes.clear()
    await world.reconcile()
    assert (replicas(world), world.cluster.writes) == (7, [])
    await world.edit(**HPA, engine={"maxBatch": 3})
    await world.reconcile()
    assert replicas(world) == 7


async def test_contract_6_handing_over_claims_the_number_makes_the_autoscaler_then_drops_it(world: World) -> None:
    await world.edit(**FIXED)
    await world.reconcile()
    world.cluster.writes.clear()
    await world.edit(**HPA)
    seen = watched(world)
    await world.reconcile()
    kinds = [kind for kind in world.kinds() if kind in ("Deployment", "HorizontalPodAutoscaler")]
    assert kinds == ["Deployment", "HorizontalPodAutoscaler", "Deployment"]
    assert set(seen) == {8}


async def test_contract_6_handing_back_takes_the_number_that_is_then_removes_the_autoscaler(world: World) -> None:
    await world.edit(**HPA)
    await world.reconcile()
    await scaled(world, 12)
    await world.edit(**FIXED)
    world.cluster.claim_replicas(world.deployment, 14, "kube-controller-manager")  # the watch has not told yet
    world.cluster.writes.clear()
    seen = watched(world)
    await world.reconcile()
    kinds = [kind for kind in world.kinds() if "status" not in kind]
    assert kinds[:3] == ["Deployment", "delete HorizontalPodAutoscaler", "Deployment"]
    assert seen == [14, 8]
    assert autoscalers(world) == []


async def test_contract_6_suspending_removes_the_autoscaler_first_and_resuming_begins_with_the_fewest(
    world: World,
) -> None:
    await world.edit(**HPA)
    await world.reconcile()
    await scaled(world, 12)
    await world.edit(**SUSPENDED)
    world.cluster.writes.clear()
    await world.reconcile()
    written = [kind for kind in world.kinds() if kind != "status"]
    assert written.index("delete HorizontalPodAutoscaler") < written.index("Deployment")
    assert (replicas(world), autoscalers(world)) == (0, [])
    assert world.condition("Ready") == ("False", "Suspended")
    await world.edit(**HPA)
    seen = watched(world)
    await world.reconcile()
    assert set(seen) == {2}
    assert autoscalers(world) == ["HorizontalPodAutoscaler"]


async def test_an_autoscaler_that_writes_between_the_look_and_the_write_is_not_overruled(world: World) -> None:
    await world.edit(**HPA)
    await world.reconcile()
    await scaled(world, 12)
    await world.edit(**FIXED)

    def meanwhile(method: str, resource: Resource) -> None:
        if resource is Resource.Deployment and replicas(world) == 12:
            world.cluster.claim_replicas(world.deployment, 15, "kube-controller-manager")

    world.cluster.refuse = meanwhile
    with pytest.raises(Exception, match="modified"):
        await world.reconcile()
    assert (replicas(world), autoscalers(world)) == (15, ["HorizontalPodAutoscaler"])
    await world.reconcile()
    assert (replicas(world), autoscalers(world)) == (8, [])


async def test_keda_asks_prometheus_for_the_load_of_the_service_and_divides_it_by_the_target(world: World) -> None:
    world.discovery.served.add(Resource.ScaledObject)
    await world.optional.look()
    await world.edit(autoscaling={"max": 3, "metric": "KvCacheUsage", "target": "800m", "provider": "KEDA"})
    await world.reconcile()
    made = world.cluster.objects[Resource.ScaledObject, NAMESPACE, "demo"]["spec"]
    assert made["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "demo"}
    assert (made["minReplicaCount"], made["maxReplicaCount"]) == (1, 3)
    (trigger,) = made["triggers"]
    assert trigger["metadata"] == {
        "serverAddress": PROMETHEUS,
        "query": 'sum(graphpod_kv_cache_usage_ratio{namespace="ns",inferenceservice="demo"})',
        "threshold": "0.8",
    }
    assert world.condition("ScalingReady") == ("Unknown", "AutoscalerPending")


async def test_keda_without_its_kind_or_without_prometheus_is_refused_and_nothing_changes(world: World) -> None:
    await world.edit(**FIXED)
    await world.reconcile()
    await world.edit(**KEDA)
    world.cluster.writes.clear()
    await world.reconcile()
    assert world.condition("Accepted") == ("False", "KedaMissing")
    assert world.kinds() == ["status"]
    world.discovery.served.add(Resource.ScaledObject)
    await world.optional.look()
    blind = world.make_reconciler(prometheus="")
    await blind.reconcile(KEY)
    assert world.condition("Accepted") == ("False", "PrometheusUnknown")
    await world.reconcile()
    assert world.condition("Accepted") == ("True", "Accepted")
    assert (replicas(world), autoscalers(world)) == (8, ["ScaledObject"])


async def test_a_suspended_service_needs_neither_keda_nor_prometheus(world: World) -> None:
    await world.edit(**FIXED)
    await world.reconcile()
    await world.edit(**KEDA, suspend=True)
    await world.reconcile()
    assert world.condition("Accepted") == ("True", "Accepted")
    assert replicas(world) == 0
    await world.edit(**KEDA)
    await world.reconcile()
    assert world.condition("Accepted") == ("False", "KedaMissing")


async def test_an_autoscaled_deployment_that_somebody_scales_to_nothing_gets_the_fewest_pods_again(
    world: World,
) -> None:
    """No autoscaler wakes it: it takes 0 for the wish that it do nothing."""
    await world.edit(**HPA)
    await world.reconcile()
    await scaled(world, 0)
    await world.reconcile()
    assert replicas(world) == 2
    assert not fields(world.deployment), "the number is the autoscaler's again"
    assert len(world.told("PutBack")) == 1
    await scaled(world, 5)
    await world.reconcile()
    assert replicas(world) == 5


async def test_who_scales_to_nothing_again_and_again_is_answered_ever_more_seldom(world: World) -> None:
    await world.edit(**HPA)
    await world.reconcile()
    for _ in range(2 * FREE):
        await scaled(world, 0)
        pause = await world.reconciler.reconcile(KEY)  # all at one moment
    assert (replicas(world), pause is not None) == (0, True)
    assert world.put_back == {"Deployment": FREE}


async def test_a_number_that_was_written_meanwhile_is_not_taken_for_nothing(world: World) -> None:
    await world.edit(**HPA)
    await world.reconcile()
    await scaled(world, 0)
    world.cluster.claim_replicas(world.deployment, 7, "kube-controller-manager")  # the watch has not told yet
    await world.reconcile()
    assert replicas(world) == 7
    await scaled(world, 0)

    def meanwhile(method: str, resource: Resource) -> None:
        if resource is Resource.Deployment and replicas(world) == 0:
            world.cluster.claim_replicas(world.deployment, 9, "kube-controller-manager")

    world.cluster.refuse = meanwhile
    with pytest.raises(Conflict):
        await world.reconcile()
    await world.reconcile()
    assert replicas(world) == 9


async def test_a_deployment_that_lost_our_label_keeps_the_pods_its_autoscaler_decided_on(world: World) -> None:
    """It looks deleted to the watch, and is found by the look before it would be made."""
    await world.edit(**HPA)
    await world.reconcile()
    await scaled(world, 7)
    del world.deployment["metadata"]["labels"]
    world.deployment["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"].pop("f:labels")
    world.informer.deleted(Resource.Deployment, world.cluster.put(Resource.Deployment, world.deployment))
    seen = watched(world)
    await world.reconcile()
    assert set(seen) == {7}
    assert "labels" in world.deployment["metadata"]


def test_every_metric_of_autoscaling_is_one_of_the_engine() -> None:
    assert set(METRICS) == set(ScalingMetric)
    exported = {row.name for row in metrics.METRICS if row.process is metrics.Process.Engine}
    assert set(METRICS.values()) <= exported


@pytest.mark.parametrize("step", STEPS)
def test_contract_6_an_operator_that_ends_between_any_two_writes_leaves_a_way_on(step: str) -> None:
    before, after = STEPS[step]

    async def from_to(writes: int | None) -> World:
        """The service as it stands once an operator ended after so many writes and another went on."""
        world = World()
        world.discovery.served.add(Resource.ScaledObject)
        await world.optional.look()
        world.cluster.put(Resource.InferenceService, inference_service(**before))
        await world.relist()
        await world.reconcile()
        if before is not FIXED:
            await scaled(world, 8)
        await world.edit(**after)
        seen, left = watched(world), [writes if writes is not None else 99]

        def end(method: str, resource: Resource) -> None:
            if left[0] == 0:
                raise Unavailable(0, "the operator ends here")
            left[0] -= 1

        world.cluster.refuse = end
        try:
            await world.reconcile()
        except Unavailable:
            world.cluster.refuse = lambda method, resource: None
            world = await successor(world)
            await world.reconcile()
        assert min(seen, default=8) == (0 if "suspend" in after else 8), seen
        return world

    undisturbed = asyncio.run(from_to(None))
    for writes in range(6):
        world = asyncio.run(from_to(writes))
        assert (replicas(world), autoscalers(world)) == (replicas(undisturbed), autoscalers(undisturbed)), writes
        held = [fields(one.deployment) for one in (world, undisturbed)]
        assert held[0] == held[1], writes


def fields(workload: dict[str, Any]) -> bool:
    """Whether the number of pods is ours."""
    return "f:replicas" in workload["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]
