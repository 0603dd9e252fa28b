"""A refusal of our own Deployment for a fault of the spec: its field is named, and the same body is not sent again."""

import pytest

from graphpod_operator.apply.applier import AGAIN_SECONDS
from graphpod_operator.conditions.message import sentence
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.kube.cluster import ServerRefused
from graphpod_operator.kube.resources import Resource
from graphpod_operator.observe.replica_failure import refusal
from graphpod_operator.plan.refused_field import blamed
from graphpod_operator.plan.writes import not_applied
from graphpod_operator.terminal.views.next_step import next_step
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


TO_GROUP = "(403 to PATCH /apis/leaderworkerset.x-k8s.io/v1/namespaces/team/leaderworkersets/demo-group)"
TO_DEPLOYMENT = "(403 to PATCH /apis/apps/v1/namespaces/team/deployments/demo)"
SETS, MADE = "leaderworkerset", "leaderworkersets demo-group"
SAYS_NO = 'admission webhook "v{}.kb.io" denied the request: '
GROUP = "spec.leaderWorkerTemplate."
LEADER = f"{GROUP}leaderTemplate.spec."
QUANTITY = 'Invalid value: v1.ResourceList{"nvidia.com/gpu":resource.Quantity{}}: field is immutable'
LABEL = "metadata.labels[kueue.x-k8s.io/queue-name]"


@pytest.mark.parametrize(
    ("kind", "said", "field", "command"),
    [
        (SETS, f"[{LEADER}containers[0].resources.requests: {QUANTITY}, {GROUP}size: x] {TO_GROUP}",
         "spec.resources", MADE),
        (SETS, f"{GROUP}size: Invalid value: 3: field is immutable {TO_GROUP}", "spec.parallelism.nodes", MADE),
        (SETS, f"{GROUP}workerTemplate.spec.nodeSelector: Invalid {TO_GROUP}", "spec.placement.nodeSelector", MADE),
        (SETS, f"{GROUP}workerTemplate.spec.containers[0].ports: Invalid {TO_GROUP}", "the ports", MADE),
        (SETS, f"{LEADER}overhead: Invalid {TO_GROUP}", f"{LEADER}overhead", MADE),
        ("deployment", f'{LABEL}: Invalid value: "": field is immutable {TO_DEPLOYMENT}',
         "the label kueue.x-k8s.io/queue-name", "deployments demo"),
    ],
)  # fmt: skip
def test_what_kueue_holds_is_no_fault_of_the_spec_and_the_step_is_a_command(
    kind: str, said: str, field: str, command: str
) -> None:
    refused = not_applied(SAYS_NO.format(kind) + said)
    assert refused.reason is Reason.KueueRefused
    assert blamed(SAYS_NO.format(kind) + said) is None, "it is sent again before the spec changes"
    message = sentence(refused.reason, refused.what, "demo", namespace="team")
    name = command.partition(" ")[2]
    assert message == (
        f"Kueue refuses a change of {field} while {name} is in a queue; "
        f"undo it, or end its pods, and new ones come: kubectl -n team delete {command}"
    )
    assert next_step(refused.reason, "team", "demo", "", message).command == f"kubectl -n team delete {command}"


@pytest.mark.parametrize(
    "said",
    [
        SAYS_NO.format(SETS) + "spec.rolloutStrategy.rollingUpdateConfiguration.maxSurge: Invalid value: -1",
        SAYS_NO.format(SETS) + 'metadata.name: Invalid value: "a.b"',
        'admission webhook "policy.example.com" denied the request: metadata.labels[kueue.x-k8s.io/queue-name]: no',
    ],
)  # fmt: skip
def test_what_another_webhook_refuses_is_not_kueues(said: str) -> None:
    assert not_applied(said).reason is Reason.ApplyRefused


def test_a_field_that_the_crd_of_groups_lacks_names_the_version_that_has_it() -> None:
    field = "spec.rolloutStrategy.rollingUpdateConfiguration.partition"
    said = "failed to create typed patch object (team/demo-group; leaderworkerset.x-k8s.io/v1, Kind=LeaderWorkerSet): "
    for told in (f".{field}: field not declared in schema", f"errors:\n  .{field}: field not declared in schema\n"):
        refused = not_applied(f"{said}{told} (500 to PATCH …)")
        assert refused.reason is Reason.LeaderWorkerSetOutdated
        assert refused.what == f"the CRD of LeaderWorkerSet in this cluster has no field {field}"
    assert "install LeaderWorkerSet 0.9 or newer" in refused.reason.row.todo
    users = ".spec.leaderWorkerTemplate.leaderTemplate.spec.affinity.nodeAffinity.x: field not declared in schema"
    assert not_applied(said + users).reason is Reason.SpecInvalid


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
