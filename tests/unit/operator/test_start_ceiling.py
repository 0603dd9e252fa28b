"""Contract 14: a start's ceiling follows from the plan alone; what starts took changes status and nothing else."""

from typing import Any

import pytest

from graphpod_operator.resource import Resource
from tests.unit.operator.objects import NAMESPACE, pod, report
from tests.unit.operator.objects import planned as plan_of
from tests.unit.operator.world import HASH, World

MINUTE = 60
SPECS: list[dict[str, Any]] = [
    {},
    {"engine": {"maxBatch": 64}},
    {"graph": {"decode": "Disabled"}},
    {"graph": {"prefill": "Disabled", "decode": "Disabled"}},
    {"graph": {"sizes": {"prefill": [4096]}}},
]


def deployment(spec: dict[str, Any]) -> dict[str, Any]:
    (body,) = [child.body for child in plan_of(**spec).children if child.resource is Resource.Deployment]
    found: dict[str, Any] = body["spec"]
    return found


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_the_startup_probe_is_the_plans_budget_in_whole_minutes(spec: dict[str, Any]) -> None:
    probe = deployment(spec)["template"]["spec"]["containers"][0]["startupProbe"]
    seconds = probe["periodSeconds"] * probe["failureThreshold"]
    budget = plan_of(**spec).policy.budget.start_seconds
    assert seconds % MINUTE == 0
    assert budget <= seconds < budget + MINUTE


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_rollout_may_take_a_whole_start_before_it_counts_as_stuck(spec: dict[str, Any]) -> None:
    found = deployment(spec)
    assert found["progressDeadlineSeconds"] > plan_of(**spec).policy.budget.start_seconds
    assert "progressDeadlineSeconds" not in found["template"]["spec"]


async def test_a_hundred_different_start_times_leave_every_object_as_it_is(world: World) -> None:
    await world.reconcile()
    children = {
        place: manifest
        for place, manifest in world.cluster.objects.items()
        if place[0] is not Resource.InferenceService
    }
    told = set()
    for number in range(100):
        for place in [place for place in world.cluster.objects if place[0] is Resource.Pod]:
            del world.cluster.objects[place]
        name = f"demo-abc-{number}"
        world.cluster.put(Resource.Pod, pod(name, HASH, ready=True))
        world.ports.report = report(name, HASH)
        world.ports.report["graph"]["decode"]["captureSeconds"] = 1.5 * number
        world.clock.now += 7.0 * number + 60
        await world.relist()
        await world.reconcile()
        status = world.cluster.objects[Resource.InferenceService, NAMESPACE, "demo"]["status"]
        told.add(status["graph"]["decode"]["captureSeconds"])
    assert len(told) == 100, "status tells each"
    assert {place: world.cluster.objects[place] for place in children} == children
