"""Contract 14: a start's ceiling follows from the plan alone; what starts took changes status and nothing else."""

from typing import Any

import pytest

from graphpod_operator.api.spec import Spec
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan.refused import Refused
from graphpod_operator.render.owner import Owner
from graphpod_operator.render.pod.container import start_limit
from graphpod_operator.render.workload.body import reconfigured
from graphpod_policy import Phase, Plan, weaken
from tests.unit.operator.objects import NAMESPACE, UID, outcome, pod, report
from tests.unit.operator.objects import planned as plan_of
from tests.unit.operator.told import seen, the
from tests.unit.operator.world import HASH, World

MINUTE = 60
SPECS: list[dict[str, Any]] = [
    {},
    {"engine": {"maxBatch": 64}},
    {"graph": {"decode": "Disabled"}},
    {"graph": {"prefill": "Disabled", "decode": "Disabled"}},
    {"graph": {"sizes": {"prefill": [4096]}}},
    {"engine": {"startTimeout": "90s"}},
    {"engine": {"startTimeout": "4h"}},
]


def deployment(spec: dict[str, Any]) -> dict[str, Any]:
    (body,) = [child.body for child in plan_of(**spec).children if child.resource is Resource.Deployment]
    found: dict[str, Any] = body["spec"]
    return found


def weaker(spec: dict[str, Any]) -> tuple[Owner, Plan, str]:
    """What `reconfigured` wants of a service whose decode was weakened."""
    body = {"model": {"uri": "pvc://weights/model"}, **spec}
    owner = Owner("demo", NAMESPACE, UID, Spec.model_validate(body))
    return owner, weaken(plan_of(**spec).policy, Phase.Decode, "CaptureFailed", "it died"), "other"


def ceiling(spec: dict[str, Any]) -> int:
    probe = deployment(spec)["template"]["spec"]["containers"][0]["startupProbe"]
    seconds: int = probe["periodSeconds"] * probe["failureThreshold"]
    return seconds


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_the_ceiling_is_generous_where_nobody_set_it(spec: dict[str, Any]) -> None:
    """Progress decides: the engine's own watchdog ends a start that makes none."""
    seconds, estimate = ceiling(spec), plan_of(**spec).policy.budget.start_seconds
    assert seconds % MINUTE == 0
    if "startTimeout" not in spec.get("engine", {}):
        assert seconds >= max(60 * MINUTE, 10 * estimate)


@pytest.mark.parametrize(("asked", "seconds"), [("1m", 60), ("90s", 120), ("1.5m", 120), ("4h", 14400)])
def test_a_start_timeout_is_kept_in_whole_minutes(asked: str, seconds: int) -> None:
    spec = {"engine": {"startTimeout": asked}}
    assert ceiling(spec) == seconds
    assert plan_of(**spec).start_limit == seconds
    degraded = reconfigured(deployment(spec), *weaker(spec))
    assert start_limit(degraded) == seconds, "a weaker plan of the operator keeps it"


@pytest.mark.parametrize(("engine", "seconds"), [({}, 168 * 3600), ({"startTimeout": "2h"}, 7200)])
def test_the_leader_of_a_group_may_wait_for_a_worker_that_has_no_node(engine: dict[str, Any], seconds: int) -> None:
    spec = {"parallelism": {"pipeline": 2, "nodes": 2}, "engine": engine}
    assert plan_of(**spec).start_limit == seconds


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_rollout_may_take_a_whole_start_before_it_counts_as_stuck(spec: dict[str, Any]) -> None:
    found = deployment(spec)
    assert found["progressDeadlineSeconds"] > ceiling(spec)
    assert "progressDeadlineSeconds" not in found["template"]["spec"]


@pytest.mark.parametrize("text", ["0s", "59s", "169h", "1e3s", "soon"])
def test_a_start_timeout_of_no_sense_is_refused_by_name(text: str) -> None:
    refused = outcome(engine={"startTimeout": text})
    assert isinstance(refused, Refused)
    assert refused.what.startswith("spec.engine.startTimeout")


def test_the_status_has_the_longest_start() -> None:
    graph = the(seen(), engine={"startTimeout": "4h"}).graph
    assert graph is not None
    assert graph.budget_seconds == 14400


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
        status = world.service["status"]
        told.add(status["graph"]["decode"]["captureSeconds"])
    assert len(told) == 100, "status tells each"
    assert {place: world.cluster.objects[place] for place in children} == children
