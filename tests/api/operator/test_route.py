"""A route through a gateway, by the Gateway API's own CRD; the test plays the gateway's controller."""

import json
from typing import Any

import pytest

from testbed.binaries.foreign import Foreign
from tests.api.operator.process import USER, Operator, serve
from tests.audit import Audit
from tests.crd import drop_crd
from tests.eventually import Eventually
from tests.places import Place

EDGE = {"name": "edge", "namespace": "gateways", "sectionName": "https"}
ROUTE: dict[str, Any] = {"parentRefs": [EDGE], "hostnames": ["llm.example.com"], "pathPrefix": "/llama"}
ROUTED: dict[str, Any] = {"networking": {"route": ROUTE}}


def answer(place: Place, accepted: str, reason: str, message: str = "as it is") -> None:
    """A gateway's controller writes what it makes of the route in its present form."""
    generation = place.get("httproute", "demo")["metadata"]["generation"]
    told = {"Accepted": (accepted, reason, message), "ResolvedRefs": ("True", "ResolvedRefs", "found")}
    conditions = [
        {
            "type": kind,
            "status": status,
            "reason": why,
            "message": what,
            "observedGeneration": generation,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for kind, (status, why, what) in told.items()
    ]
    parents = [{"parentRef": EDGE, "controllerName": "example.com/gateway", "conditions": conditions}]
    place.merge("httproute", "demo", {"status": {"parents": parents}}, "status")


def test_a_route_comes_with_its_kind_tells_what_the_gateway_says_and_goes(
    hasty: Operator, place: Place, audit: Audit, eventually: Eventually
) -> None:
    mark = audit.mark()
    place.apply(**ROUTED)
    told = eventually(place.reached("RouteReady", "False", "KindNotServed"))
    assert told.startswith("HTTPRoute (gateway.networking.k8s.io/v1) is not served by this cluster")
    assert place.condition("Accepted")[:2] == ("True", "Accepted")

    serve(place, Foreign.HTTPRoute)
    told = eventually(place.reached("RouteReady", "Unknown", "RoutePending"), timeout=60)
    assert "Gateway gateways/edge, listener https" in told
    rules = place.get("httproute", "demo")["spec"]["rules"]
    paths = [(path["type"], path["value"]) for rule in rules for path in [match["path"] for match in rule["matches"]]]
    pages = [("Exact", f"/llama/{page}") for page in ("tokenize", "detokenize", "version", "health")]
    assert paths == [("PathPrefix", "/llama/v1"), *pages]
    for rule in rules:
        assert rule["timeouts"] == {"request": "0s"}
        (backend,) = rule["backendRefs"]
        ports = {port["port"] for port in place.get("service", backend["name"])["spec"]["ports"]}
        assert backend["port"] in ports

    answer(place, "False", "NotAllowedByListeners", "namespace is not among them")
    told = eventually(place.reached("RouteReady", "False", "RouteNotAllowed"))
    assert "NotAllowedByListeners: namespace is not among them; let allowedRoutes" in told
    assert "addresses" not in place.status()
    answer(place, "True", "Accepted")
    eventually(place.reached("RouteReady", "True", "RouteAccepted"))
    assert place.status()["addresses"] == ["llm.example.com/llama/v1"]
    assert hasty.said("the API server changed fields we applied", place) == []

    drop_crd(place.cluster, Foreign.HTTPRoute.crd)
    eventually(place.reached("RouteReady", "False", "KindNotServed"), timeout=60)
    assert "addresses" not in place.status()
    serve(place, Foreign.HTTPRoute)
    eventually(place.reached("RouteReady", "Unknown", "RoutePending"), timeout=60)
    answer(place, "True", "Accepted")
    eventually(place.reached("RouteReady", "True", "RouteAccepted"))
    place.apply()
    eventually(lambda: not place.names("httproutes"))
    eventually(lambda: "addresses" not in place.status())
    assert place.condition("RouteReady") == ("", "", "")
    assert audit.since(mark).by(USER).forbidden() == ()


def test_contract_9_a_route_that_is_changed_or_deleted_is_put_back_in_one_write(
    hasty: Operator, place: Place, audit: Audit, eventually: Eventually
) -> None:
    serve(place, Foreign.HTTPRoute)
    place.apply(**ROUTED)
    eventually(place.reached("RouteReady", "Unknown", "RoutePending"), timeout=60)
    answer(place, "True", "Accepted")
    eventually(place.reached("RouteReady", "True", "RouteAccepted"))
    spec = place.get("httproute", "demo")["spec"]
    eventually(hasty.idle)
    mark = audit.mark()
    place.merge("httproute", "demo", {"spec": {"hostnames": ["elsewhere.example.com"]}})
    eventually(lambda: place.get("httproute", "demo")["spec"] == spec)
    eventually(place.reached("RouteReady", "Unknown", "RoutePending"))  # of this form the gateway has said nothing
    place.drop("httproute", "demo")
    eventually(lambda: place.names("httproutes"))  # there is none until the operator has heard of it
    eventually(lambda: place.get("httproute", "demo")["spec"] == spec)
    eventually(hasty.idle)
    writes = audit.since(mark).by(USER).of(place.namespace).writes()
    assert [write.resource for write in writes if write.resource == "httproutes"] == ["httproutes"] * 2


@pytest.mark.parametrize(
    "route",
    [
        {"parentRefs": [{"name": "edge"}], "requestTimeout": "GatewayDefault"},
        {
            "parentRefs": [EDGE, {"name": "edge", "namespace": "gateways", "sectionName": "http"}, {"name": "inner"}],
            "hostnames": ["*.example.com", "example.com"],
            "requestTimeout": "5m",
        },
    ],
    ids=["the least", "everything"],
)
def test_what_is_made_has_the_servers_normal_form_so_that_nothing_is_written_twice(
    hasty: Operator, place: Place, audit: Audit, eventually: Eventually, route: dict[str, Any]
) -> None:
    serve(place, Foreign.HTTPRoute)
    mark = audit.mark()
    place.apply(networking={"route": route})
    eventually(place.reached("RouteReady", "Unknown", "RoutePending"), timeout=60)
    place.label("gisvc", "demo", {"touched": "yes"})
    place.apply(replicas=2, networking={"route": route})
    eventually(lambda: place.get("deployment", "demo")["spec"]["replicas"] == 2)
    eventually(hasty.idle)
    writes = audit.since(mark).by(USER).of(place.namespace).writes()
    assert len([write for write in writes if write.resource == "httproutes"]) == 1
    assert hasty.said("the API server changed fields we applied", place) == []


def test_a_route_of_somebody_else_is_a_collision_and_nothing_is_touched(
    hasty: Operator, place: Place, markers: Place, eventually: Eventually
) -> None:
    serve(place, Foreign.HTTPRoute)
    kind = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "demo"}}
    place.kubectl("apply", "-f", "-", input=json.dumps({**kind, "spec": {"hostnames": ["theirs.example.com"]}}))
    # while the kind is unknown to the operator no route is in the way, and the rest is made. The log may say nothing: a
    # kind that went and came between two looks has never been away
    markers.apply("routed", **ROUTED)
    eventually(markers.reached("RouteReady", "Unknown", "RoutePending", "routed"), timeout=60)
    markers.remove("routed")
    place.apply(**ROUTED)
    assert "HTTPRoute" in eventually(place.reached("Accepted", "False", "NameCollision"), timeout=60)
    assert place.names("deployments,services") == []
    assert place.get("httproute", "demo")["spec"]["hostnames"] == ["theirs.example.com"]
