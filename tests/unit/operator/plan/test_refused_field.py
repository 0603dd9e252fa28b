"""A refusal of our own Deployment for a fault of the spec: its field is named, and the same body is not sent again."""

import pytest

from graphpod_operator.apply.applier import AGAIN_SECONDS
from graphpod_operator.conditions.message import sentence
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.kube.cluster import ServerRefused
from graphpod_operator.kube.resources import Resource
from graphpod_operator.observe.replica_failure import refusal
from graphpod_operator.plan.writes import not_applied
from tests.unit.operator.objects import NAMESPACE, inference_service
from tests.unit.operator.world import World

POD = "spec.template.spec."
CONTAINER = POD + "containers[0]."
ABOVE = f'Deployment.apps "d" is invalid: {CONTAINER}resources.requests: Invalid value: "4": must be less than limit'


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (ABOVE, 'spec.resources.requests: Invalid value: "4": must be less than limit'),
        (f"… is invalid: {CONTAINER}resources.limits[x]: no type", "spec.resources.limits[x]: no type"),
        (f"… is invalid: {CONTAINER}resources.limits: Required value", "spec.resources.limits: Required value"),
        (f"… .{POD}affinity.nodeAffinity.x: field not declared", "spec.placement.affinity.nodeAffinity.x: field not"),
        (f"… {POD}tolerations[0].operator: Invalid value", "spec.placement.tolerations[0].operator: Invalid value"),
        (f"… {POD}nodeSelector: Invalid value", "spec.placement.nodeSelector: Invalid value"),
        (f"… {POD}priorityClassName: Invalid value", "spec.placement.priorityClassName: Invalid value"),
        (f"… {POD}runtimeClassName: Invalid value", "spec.placement.runtimeClassName: Invalid value"),
        (f"… {POD}topologySpreadConstraints[0].topologyKey: x", "spec.placement.topologySpread[0].topologyKey: x"),
        (f"… [{POD}affinity.a: x, {CONTAINER}env[9]: y]", "spec.placement.affinity.a: x"),
    ],
)  # fmt: skip
def test_the_field_of_the_spec_is_named_with_the_servers_words(said: str, told: str) -> None:
    refused = not_applied(said)
    assert refused.reason is Reason.SpecInvalid
    assert refused.what.startswith(told)


def test_no_refusal_advises_to_delete_an_object() -> None:
    for reason in (Reason.ApplyRefused, Reason.SpecInvalid, Reason.PodTemplateInvalid):
        assert "delete" not in reason.row.todo


def test_a_field_that_the_server_does_not_know_is_named_before_the_next_step() -> None:
    refused = not_applied(
        "failed to create typed patch object (team-alpha/demo; apps/v1, Kind=Deployment): "
        '.spec.template.spec.volumes[name="v"].emptyDir.size: field not declared in schema'
    )
    assert "emptyDir.size: field not declared in schema; " in sentence(refused.reason, refused.what, "demo")


class Refusing:
    """A server that refuses every Deployment, and counts."""

    def __init__(self, world: World, message: str) -> None:
        self.sent = 0
        self._message = message
        world.cluster.refuse = self

    def __call__(self, method: str, resource: Resource) -> None:
        if resource is Resource.Deployment and method == "apply":
            self.sent += 1
            raise ServerRefused(422, self._message)


def told(world: World, kind: str) -> str:
    return f"{world.condition(kind)[1]}: {world.message(kind)}"


async def test_a_refused_body_is_not_sent_at_each_look_but_after_some_minutes(world: World) -> None:
    server = Refusing(world, ABOVE)
    pauses = [await world.reconcile() for _ in range(20)]
    assert server.sent == 1
    assert told(world, "Stalled").startswith("SpecInvalid: spec.resources.requests: Invalid value")
    assert pauses[-1] is not None
    assert pauses[-1] <= AGAIN_SECONDS
    world.clock.now += AGAIN_SECONDS
    await world.reconcile()
    assert server.sent == 2


async def test_an_edit_is_sent_at_once(world: World) -> None:
    server = Refusing(world, ABOVE)
    await world.reconcile()
    await world.edit(engine={"maxBatch": 4})
    await world.reconcile()
    assert server.sent == 2
    world.cluster.refuse = lambda method, resource: None
    await world.edit()
    await world.reconcile()
    assert told(world, "Accepted").startswith("Accepted")
    assert world.deployment


async def test_a_service_of_the_same_name_made_again_is_sent_at_once(world: World) -> None:
    server = Refusing(world, ABOVE)
    await world.reconcile()
    del world.cluster.objects[Resource.InferenceService, NAMESPACE, "demo"]
    await world.relist()
    await world.reconcile()
    world.cluster.put(Resource.InferenceService, inference_service())
    await world.relist()
    await world.reconcile()
    assert server.sent == 2


@pytest.mark.parametrize(
    "message",
    [
        'pods "d-1" is forbidden: no PriorityClass with name gold was found',
        'pods "d-1" is forbidden: pod rejected: RuntimeClass "kata" not found',
    ],
)
def test_a_class_that_does_not_exist_is_about_the_placement(message: str) -> None:
    assert refusal(message)[0] is Reason.PlacementRefused
