"""NetworkPolicies (contract 12): the admin port is for the operator and monitoring, and nobody is let in by mistake."""

import json
from typing import Any

import pytest

from graphpod_operator.cache.service import Service
from graphpod_operator.install.installation import Installation
from graphpod_operator.install.network_access import Access, AccessInvalid
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.plan_input import PlanInput
from tests.unit.operator.objects import IMAGES, inference_service
from tests.unit.operator.world import World

OPERATOR = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "graphpod-system"}}}
GATEWAY = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gateways"}}}
GIVEN = json.dumps({"admin": [OPERATOR], "http": [GATEWAY]})
POLICY = Resource.NetworkPolicy, "ns", "demo"


def policies(access: Access | None) -> list[dict[str, Any]]:
    wanted = desire(PlanInput(Service.of(inference_service()), Installation(IMAGES, access=access)))
    assert isinstance(wanted, Desired)
    return [child.body["spec"] for child in wanted.children if child.resource is Resource.NetworkPolicy]


def test_the_http_port_is_for_the_namespace_and_gateways_and_the_admin_port_for_the_operator() -> None:
    (policy,) = policies(Access.read(GIVEN))
    assert policy == {
        "podSelector": {
            "matchLabels": {"app.kubernetes.io/name": "graphpod-engine", "app.kubernetes.io/instance": "demo"}
        },
        "policyTypes": ["Ingress"],
        "ingress": [
            {"from": [{"podSelector": {}}, GATEWAY], "ports": [{"port": "http", "protocol": "TCP"}]},
            {"from": [OPERATOR], "ports": [{"port": "admin", "protocol": "TCP"}]},
        ],
    }


def test_without_a_word_about_access_there_is_no_policy() -> None:
    assert policies(None) == []


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        "no JSON",
        '{"admin": []}',
        '{"admin": [{}]}',
        '{"admin": {}}',
        '{"admin": ["x"]}',
        '{"admin": [{"podSelector": {}}], "http": [{}]}',
        '{"admin": [{"podSelector": {}}], "https": []}',
        '{"admin": [{"podSelecter": {}}]}',
        '{"admin": [{"podSelector": {}}], "routes": "gateways"}',
        '{"admin": [{"podSelector": {}}], "routes": [{"podSelector": {}}]}',
        '{"admin": [{"podSelector": {}}], "routes": ["Gate.Ways"]}',
        '{"admin": [{"podSelector": null}]}',
        '{"admin": [{"podSelector": {}}, {"ipBlock": {}}]}',
        '{"admin": [{"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}}]}',
    ],
)
def test_what_would_let_everybody_in_lock_the_operator_out_or_be_no_policy_is_refused(text: str) -> None:
    with pytest.raises(AccessInvalid, match="the operator's own pods among those of admin"):
        Access.read(text)


async def test_a_policy_goes_when_the_operator_is_told_to_make_none(world: World) -> None:
    world.reconciler = world.make_reconciler(access=Access.read(GIVEN))
    await world.reconcile()
    assert POLICY in world.cluster.objects
    world.reconciler = world.make_reconciler()
    world.cluster.writes.clear()
    await world.reconcile()
    assert world.cluster.writes == [("delete NetworkPolicy", "demo")]
