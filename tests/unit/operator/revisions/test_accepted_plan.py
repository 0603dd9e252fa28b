"""While a spec is refused, status shows what runs: the plan of the last spec that was accepted, or none."""

from typing import Any

import pytest

from graphpod_operator.kube.cluster import ServerRefused
from graphpod_operator.kube.resources import Resource
from tests.unit.operator.hour import Hour
from tests.unit.operator.objects import report
from tests.unit.operator.world import HASH, World

REFUSED = {"engine": {"deterministic": True}}


def graph(world: World) -> dict[str, Any] | None:
    found: dict[str, Any] | None = world.service["status"].get("graph")
    return found


async def served(world: World) -> dict[str, Any]:
    """The status of a service whose pod serves."""
    await world.settle()
    world.ports.report = report(config_hash=HASH)
    world.put_pod(ready=True)
    world.deployment["status"] = {
        "observedGeneration": 9, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
    }  # fmt: skip
    world.cluster.put(Resource.Deployment, world.deployment)
    await world.settle()
    assert world.condition("Ready") == ("True", "Ready")
    status: dict[str, Any] = world.service["status"]
    return status


async def test_a_service_that_never_ran_has_no_plan_while_it_is_refused(world: World) -> None:
    await world.edit(**REFUSED)
    await world.reconcile()
    assert world.condition("Accepted") == ("False", "FeatureNotBuilt")
    assert graph(world) is None
    await world.edit()
    await world.reconcile()
    assert graph(world)["decode"]["planned"] == "Full"


async def test_a_refused_edit_keeps_the_plan_of_what_runs_also_for_the_next_operator(world: World) -> None:
    before = await served(world)
    await world.edit(**REFUSED, graph={"decode": "Breakable", "prefill": "Disabled"})
    await world.reconcile()
    assert world.condition("Accepted") == ("False", "FeatureNotBuilt")
    for name in ("graph", "revision", "pods"):
        assert world.service["status"][name] == before[name], name
    writes = len(world.cluster.writes)
    successor = world.successor()
    await successor.relist()
    await successor.reconcile()
    assert len(world.cluster.writes) == writes


async def test_the_plan_of_a_refused_edit_is_that_of_the_rollout_under_way(world: World) -> None:
    """Generation 2 was accepted and its pods start; generation 3 is refused."""
    await served(world)
    await world.edit(graph={"decode": "Breakable"})
    await world.reconcile()
    second = graph(world)
    assert second is not None
    assert second["configHash"] != HASH
    await world.edit(**REFUSED)
    await world.reconcile()
    assert graph(world) == second
    assert second["decode"]["display"] == "Breakable (planned)"


async def test_an_edit_that_the_api_server_refuses_shows_the_plan_that_its_pods_have(world: World) -> None:
    before = await served(world)

    def refuse(method: str, resource: Resource) -> None:
        if resource is Resource.Deployment:
            raise ServerRefused(422, "spec.template: no good")

    world.cluster.refuse = refuse
    await world.edit(graph={"decode": "Breakable"})
    with pytest.raises(Exception, match="no good"):
        await world.reconcile()
    assert world.condition("Accepted")[0] == "False"
    assert graph(world) == before["graph"]


async def test_a_plan_that_was_weakened_keeps_its_steps_while_the_spec_is_refused(world: World) -> None:
    def dies(policies: dict[str, str]) -> tuple[int, str] | None:
        return (12, "CaptureFailed: decode size 4: lost") if policies["decode"] == "Full" else None

    hour = Hour(world, dies)
    await hour.pass_by(3600)
    before = graph(world)
    assert before is not None
    assert (before["decode"]["planned"], before["decode"]["effective"]) == ("Full", "Breakable")
    await world.edit(**REFUSED)
    await world.reconcile()
    assert graph(world) == before


async def test_pods_whose_revision_is_corrupt_serve_on_without_a_plan(world: World) -> None:
    await served(world)
    for key, body in list(world.cluster.objects.items()):
        if key[0] is Resource.ControllerRevision:
            world.cluster.put(Resource.ControllerRevision, {**body, "data": {}})
    await world.edit(**REFUSED)
    await world.reconcile()
    assert graph(world) is None
    assert world.service["status"]["pods"] == "1/1"
    assert world.condition("Available") == ("True", "Serving")
