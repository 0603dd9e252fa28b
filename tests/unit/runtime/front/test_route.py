"""What clients of a Gateway reach: the route that the operator renders, a gateway that follows it, and a server."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from graphpod_operator.kube.resources import Resource
from stubs.gateway import Gateway, destination
from tests.unit.operator.objects import planned

from .conftest import Front


def route(**wanted: Any) -> dict[str, Any]:
    """The HTTPRoute of a service with this route in its spec."""
    children = planned(networking={"route": {"parentRefs": [{"name": "edge"}], **wanted}}).children
    (body,) = [child.body for child in children if child.resource is Resource.HTTPRoute]
    return body


@pytest.fixture(params=["", "/llama", "/a/b"])
def reached(front: Front, request: pytest.FixtureRequest) -> Iterator[str]:
    """Where clients of a Gateway find the service, for a route with each prefix."""
    prefix = request.param
    address = urlsplit(front.http)
    assert address.hostname
    assert address.port
    with Gateway(route(**({"pathPrefix": prefix} if prefix else {})), (address.hostname, address.port)) as gateway:
        yield gateway.url + prefix


def test_a_client_of_a_gateway_reaches_the_api_and_the_pages_of_the_route(reached: str) -> None:
    assert httpx2.get(reached + "/v1/models").json()["data"][0]["id"] == "echo"
    assert httpx2.post(reached + "/tokenize", json={"prompt": "ab"}).json()["count"] == 2
    assert httpx2.post(reached + "/detokenize", json={"tokens": [97]}).status_code == 200
    assert "version" in httpx2.get(reached + "/version").json()
    assert httpx2.get(reached + "/health").status_code == 200


@pytest.mark.parametrize(
    "path",
    ["/metrics", "/load", "/ping", "/", "/v1metrics", "/version/x", "/healthz", "/V1/models", "/metrics/", "//metrics"],
)
def test_a_client_of_a_gateway_does_not_reach_the_rest(reached: str, path: str) -> None:
    answer = httpx2.get(reached + path)
    assert (answer.status_code, answer.headers.get("x-answered-by")) == (404, "gateway")


@pytest.mark.parametrize("path", ["/v1/%2e%2e/metrics", "/v1/..%2fmetrics", "/v1//metrics", "/v1/metrics"])
def test_a_path_that_climbs_out_of_the_api_finds_nothing(reached: str, path: str) -> None:
    answer = httpx2.get(reached + path)
    assert (answer.status_code, answer.headers.get("x-answered-by")) == (404, None)
    assert answer.json()["error"]["code"] == "unknown_url"
    assert "graphpod_requests" not in answer.text


def test_the_stub_matches_whole_elements_and_prefers_the_more_exact_rule() -> None:
    rules = route()["spec"]["rules"]
    assert destination(rules, "/v1") == "/v1"
    assert destination(rules, "/v1/models") == "/v1/models"
    assert destination(rules, "/v1x") is None
    prefixed = route(pathPrefix="/v1")["spec"]["rules"]
    assert destination(prefixed, "/v1/v1/models") == "/v1/models"
    assert destination(prefixed, "/v1/health") == "/health"
    assert destination(prefixed, "/v1/models") is None
