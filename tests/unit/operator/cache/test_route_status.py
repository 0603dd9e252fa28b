"""What gateways say of a route becomes a condition with the next step, and addresses once all of them take it."""

import dataclasses
import json
from types import MappingProxyType
from typing import Any

import pytest

from graphpod_operator.api.status import Status
from graphpod_operator.cache.route_status import BY_WORD, RouteStatus
from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.types import ConditionType
from graphpod_operator.install.installation import Installation
from graphpod_operator.install.network_access import Access
from graphpod_operator.kube.absent_kinds import Absent, not_served
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.plan_input import PlanInput
from graphpod_operator.status.status import status
from tests.unit.operator.objects import IMAGES, NAMESPACE, inference_service, planned
from tests.unit.operator.told import NOW, READY, the, words
from tests.unit.operator.world import World

Manifest = dict[str, Any]
EDGE, INNER = {"name": "edge", "namespace": "gateways"}, {"name": "inner"}
ROUTE: Manifest = {"parentRefs": [EDGE, INNER], "hostnames": ["llm.example.com", "*.example.org"], "pathPrefix": "/a"}
ASKED: Manifest = {"networking": {"route": ROUTE}}


def says(ref: Manifest, generation: int | None = 2, **conditions: tuple[str, str, str]) -> Manifest:
    """What one controller writes of one Gateway; what it does not mention is well."""
    told = {"Accepted": ("True", "Accepted", ""), "ResolvedRefs": ("True", "ResolvedRefs", "")} | conditions
    seen = {} if generation is None else {"observedGeneration": generation}
    rows = [
        {"type": kind, "status": status, "reason": reason, "message": message, **seen}
        for kind, (status, reason, message) in told.items()
    ]
    return {"parentRef": ref, "controllerName": "example.com/gateway", "conditions": rows}


def live(*parents: Manifest) -> RouteStatus:
    """The route as the cluster has it, at its second generation."""
    wanted = planned(**ASKED)
    (body,) = [child.body for child in wanted.children if child.resource is Resource.HTTPRoute]
    return RouteStatus.of(
        {**body, "metadata": {**body["metadata"], "generation": 2}, "status": {"parents": list(parents)}}
    )


def told(*parents: Manifest) -> Status:
    return the(dataclasses.replace(READY, route=live(*parents)), **ASKED)


def route_ready(status: Status) -> tuple[str, str, str]:
    (found,) = [one for one in status.conditions if one.type == ConditionType.RouteReady]
    return found.status.value, found.reason, found.message


def test_a_route_that_every_gateway_takes_gives_the_service_its_addresses() -> None:
    status = told(says(EDGE), says(INNER))
    assert route_ready(status) == (
        "True",
        "RouteAccepted",
        "accepted by Gateway gateways/edge, Gateway ns/inner",
    )
    assert status.addresses == ("llm.example.com/a/v1", "*.example.org/a/v1")
    assert status.url == "http://demo.ns.svc/v1"


def test_a_reference_to_the_own_namespace_is_the_same_with_and_without_its_name() -> None:
    assert words(told(says(EDGE), says({**INNER, "namespace": NAMESPACE})))["RouteReady"] == ("True", "RouteAccepted")


@pytest.mark.parametrize(
    "parents",
    [
        [],
        [says(EDGE)],
        [says(EDGE), says(INNER, generation=1)],
        [says(EDGE), says({**INNER, "sectionName": "http"})],
        [says(EDGE), {**says(INNER), "conditions": says(INNER)["conditions"][:1]}],
        [says(EDGE), says(INNER, Accepted=("Unknown", "Pending", "wait"))],
    ],
    ids=["nobody", "one of two", "of an earlier form", "of another listener", "by half", "not decided"],
)
def test_a_gateway_that_has_not_spoken_of_the_present_route_is_waited_for(parents: list[Manifest]) -> None:
    status = told(*parents)
    assert route_ready(status)[:2] == ("Unknown", "RoutePending")
    assert "kubectl get gateways.gateway.networking.k8s.io -A" in route_ready(status)[2]
    assert status.addresses is None
    assert words(status)["Ready"] == ("True", "Ready")


def test_a_controller_that_tells_no_generation_is_believed() -> None:
    assert words(told(says(EDGE, None), says(INNER, None)))["RouteReady"] == ("True", "RouteAccepted")


@pytest.mark.parametrize(
    ("condition", "word", "reason"),
    [
        *(("Accepted", word, reason.name) for word, reason in BY_WORD.items()),
        ("Accepted", "Invalid", "RouteRefused"),
        ("ResolvedRefs", "BackendNotFound", "RouteRefused"),
        ("ResolvedRefs", "RefNotPermitted", "RouteRefused"),
    ],
)
def test_a_refusal_has_the_gateways_words_and_the_next_step(condition: str, word: str, reason: str) -> None:
    refusal = {condition: ("False", word, "for this and that")}
    status = told(says(EDGE), says(INNER, **refusal))
    assert route_ready(status)[:2] == ("False", reason)
    what, _, step = route_ready(status)[2].partition("; ")
    assert what == f"Gateway ns/inner: {word}: for this and that"
    assert step
    assert status.addresses is None


def test_a_refusal_comes_before_silence_and_before_consent() -> None:
    refused = says(INNER, Accepted=("False", "NoMatchingParent", "no such listener"))
    assert words(told(refused))["RouteReady"] == ("False", "RouteListenerUnmatched")
    assert words(told(says(EDGE), refused))["RouteReady"] == ("False", "RouteListenerUnmatched")


def test_a_long_message_of_a_gateway_leaves_room_for_the_next_step() -> None:
    status = told(says(EDGE), says(INNER, Accepted=("False", "NotAllowedByListeners", "x" * 4000)))
    assert route_ready(status)[2].endswith("let allowedRoutes of a listener of that Gateway admit this namespace")


def test_a_route_without_hostnames_has_no_address_of_its_own() -> None:
    spec = {"networking": {"route": {"parentRefs": [INNER]}}}
    wanted = planned(**spec)
    (body,) = [child.body for child in wanted.children if child.resource is Resource.HTTPRoute]
    route = RouteStatus.of({**body, "status": {"parents": [says(INNER, 1)]}})
    assert the(dataclasses.replace(READY, route=route), **spec).addresses is None
    assert route.taken


def raw(rules: list[Manifest], hostnames: list[str], refs: list[Manifest]) -> RouteStatus:
    """A route as somebody may have changed it."""
    spec = {"parentRefs": refs, "hostnames": hostnames, "rules": rules}
    metadata = {"name": "demo", "namespace": NAMESPACE}
    return RouteStatus.of({"metadata": metadata, "spec": spec, "status": {"parents": [says(ref, 1) for ref in refs]}})


def test_a_route_with_more_addresses_than_the_status_has_room_for_leaves_a_status() -> None:
    paths = [
        {"path": {"type": "PathPrefix", "value": "/" + "x" * 600}},
        {"path": {"type": "PathPrefix", "value": "/v1"}},
    ]
    hosts = [f"h{number}.example.com" for number in range(20)]
    status = the(dataclasses.replace(READY, route=raw([{"matches": paths}], hosts, [EDGE])), **ASKED)
    assert status.addresses == tuple(f"{host}/v1" for host in hosts[:16])


def test_a_match_without_a_path_is_one_of_every_path() -> None:
    assert raw([{"matches": [{"headers": []}]}, {}], ["a.example.com"], [EDGE]).addresses == ("a.example.com/",)


def test_a_route_that_names_no_gateway_is_taken_by_none() -> None:
    status = the(dataclasses.replace(READY, route=raw([], [], [])), **ASKED)
    assert route_ready(status)[:2] == ("Unknown", "RoutePending")
    assert status.addresses is None


def test_without_the_field_there_is_neither_condition_nor_address() -> None:
    assert "RouteReady" not in words(the(READY))
    assert the(READY).addresses is None


ADMIN = {"admin": [{"podSelector": {"matchLabels": {"app": "operator"}}}]}
GIVEN = json.dumps(ADMIN | {"routes": ["gateways", "another", NAMESPACE]})
GATEWAYS = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gateways"}}}


def under(access: str, absent: Absent = MappingProxyType({}), **spec: Any) -> Desired:
    """What a service wants where the installer says who may reach pods."""
    found = Service.of(inference_service(**(spec or ASKED)))
    wanted = desire(PlanInput(found, Installation(IMAGES, access=Access.read(access)), absent=absent))
    assert isinstance(wanted, Desired)
    return wanted


def let_in(wanted: Desired) -> list[list[Manifest]]:
    """Who may ask on each port."""
    (policy,) = [child.body for child in wanted.children if child.resource is Resource.NetworkPolicy]
    return [rule["from"] for rule in policy["spec"]["ingress"]]


@pytest.mark.parametrize("served", [True, False])
def test_the_network_policy_lets_in_the_named_namespaces_of_gateways_while_there_is_a_route(served: bool) -> None:
    """Contract 12."""
    http, admin = let_in(under(GIVEN, {} if served else {Resource.HTTPRoute: not_served(Resource.HTTPRoute)}))
    assert http == [{"podSelector": {}}, *([GATEWAYS] if served else [])]
    assert GATEWAYS not in admin


def test_who_writes_a_service_opens_it_to_no_namespace_that_the_installer_has_not_named() -> None:
    """Contract 12."""
    http, _ = let_in(under(json.dumps(ADMIN | {"routes": ["another"]})))
    assert http == [{"podSelector": {}}]


def test_a_gateway_of_the_services_own_namespace_is_let_in_once() -> None:
    route = {"parentRefs": [{"name": "inner", "namespace": NAMESPACE}]}
    wanted = under(GIVEN, networking={"route": route})
    assert let_in(wanted)[0] == [{"podSelector": {}}]
    assert wanted.shut == ()


@pytest.mark.parametrize(
    ("access", "said"),
    [
        ({}, ("Unknown", "RouteShut")),
        ({"routes": ["another"]}, ("Unknown", "RouteShut")),
        ({"routes": ["gateways"]}, ("True", "RouteAccepted")),
        ({"http": [{"namespaceSelector": {"matchLabels": {"proxies": "here"}}}]}, ("True", "RouteAccepted")),
    ],
    ids=["nobody is named", "another is", "its namespace is", "who asks is"],
)
def test_a_route_through_a_namespace_that_is_kept_out_says_so_with_the_next_step(
    access: Manifest, said: tuple[str, str]
) -> None:
    found = Service.of(inference_service(**ASKED))
    seen = dataclasses.replace(READY, route=live(says(EDGE), says(INNER)))
    told = status(found, under(json.dumps(ADMIN | access)), None, seen, NOW, None)
    assert route_ready(told)[:2] == said
    if said[1] == "RouteShut":
        assert "keeps out pods of namespace gateways" in route_ready(told)[2]
        assert "networkPolicy.routeNamespaces" in route_ready(told)[2]
    assert told.addresses is not None


async def routed() -> World:
    """A service that asks for a route, where there are routes."""
    world = World()
    world.cluster.put(Resource.InferenceService, inference_service(**ASKED))
    world.discovery.served.add(Resource.HTTPRoute)
    await world.relist()
    await world.optional.look()
    return world


async def test_a_route_of_another_service_of_that_name_gives_this_one_no_address() -> None:
    world = await routed()
    await world.reconcile()
    there = Resource.HTTPRoute, NAMESPACE, "demo"
    route = world.cluster.objects[there]
    (owner,) = route["metadata"]["ownerReferences"]
    metadata = {**route["metadata"], "ownerReferences": [{**owner, "uid": "the one before"}]}
    status = {"parents": [says(EDGE, None), says(INNER, None)]}
    world.cluster.put(Resource.HTTPRoute, {**route, "metadata": metadata, "status": status})
    before = world.service
    paused = {**before["metadata"], "annotations": {"graphpod.dev/paused": "true"}}
    world.cluster.put(Resource.InferenceService, {**before, "metadata": paused})
    await world.relist()
    await world.reconcile()
    assert world.condition("RouteReady") == ("Unknown", "RoutePending")
    assert "addresses" not in world.service["status"]


async def test_a_gateways_word_brings_a_new_status_and_no_other_write() -> None:
    world = await routed()
    await world.reconcile()
    assert world.condition("RouteReady") == ("Unknown", "RoutePending")
    there = Resource.HTTPRoute, NAMESPACE, "demo"
    world.cluster.put(
        Resource.HTTPRoute,
        {**world.cluster.objects[there], "status": {"parents": [says(EDGE, None), says(INNER, None)]}},
    )
    await world.relist()
    world.cluster.writes.clear()
    await world.reconcile()
    assert world.condition("RouteReady") == ("True", "RouteAccepted")
    assert [kind for kind in world.kinds() if "Event" not in kind] == ["status"]
