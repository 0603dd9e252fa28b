"""HTTPS, origins of pages and traces: what the fields change in a pod, its Service, its policy and its route."""

from typing import Any

import pytest

from graphpod_operator.api import duration, quantity
from graphpod_operator.api.engine import HttpLimits
from graphpod_operator.cache.service import Service
from graphpod_operator.install.installation import Installation
from graphpod_operator.install.network_access import Access
from graphpod_operator.kube.resources import Resource
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.plan_input import PlanInput
from graphpod_policy import http_limits
from tests.unit.operator.objects import IMAGES, INSTALLED, inference_service, planned
from tests.unit.operator.render.test_network_policy import GIVEN

TLS = {"tlsSecretRef": {"name": "cert"}}
ROUTE = {"route": {"parentRefs": [{"name": "edge"}]}}


def bodies(**spec: Any) -> dict[Resource, dict[str, Any]]:
    return {child.resource: child.body for child in planned(**spec).children}


def command(engine: dict[str, Any]) -> list[str]:
    (container,) = bodies(engine=engine)[Resource.Deployment]["spec"]["template"]["spec"]["containers"]
    found: list[str] = container["command"]
    return found[4:]


@pytest.mark.parametrize(
    ("engine", "arguments"),
    [
        ({}, []),
        ({"vllmMetricNames": True}, ["--vllm-metric-names"]),
        ({"samplingDefaults": "Model"}, []),
        ({"samplingDefaults": "OpenAI"}, ["--sampling-defaults", "OpenAI"]),
        (TLS, ["--tls-folder", "/etc/graphpod-tls"]),
        (
            {"cors": {"allowOrigins": ["https://a", "*"]}},
            ["--cors-allow-origin", "https://a", "--cors-allow-origin", "*"],
        ),
        (
            {"tracing": {"endpoint": "http://c:4318", "samplingRatePerMillion": 0}},
            ["--otlp-endpoint", "http://c:4318", "--trace-sampling-per-million", "0"],
        ),
        ({"httpLimits": {"bodySize": "4096Ki", "readTimeout": "1m"}}, []),
        (
            {"httpLimits": {"bodySize": "64Mi", "headerTimeout": "1500ms", "bodyTimeout": "1m", "readTimeout": "1h"}},
            [
                "--max-body-size",
                "67108864",
                "--header-timeout",
                "1.5",
                "--body-timeout",
                "60",
                "--read-timeout",
                "3600",
            ],
        ),
    ],
)
def test_each_field_is_an_option_of_the_engine(engine: dict[str, Any], arguments: list[str]) -> None:
    assert command(engine) == arguments


@pytest.mark.parametrize(
    "limits",
    [{"bodySize": "64Ki"}, {"bodySize": "1"}, {"bodySize": "65Mi"}, {"headerTimeout": "999ms"}, {"readTimeout": "61m"}],
)
def test_limits_of_requests_have_bounds(limits: dict[str, str]) -> None:
    outcome = desire(PlanInput(Service.of(inference_service(engine={"httpLimits": limits})), INSTALLED))
    assert isinstance(outcome, Desired) == (limits == {"bodySize": "64Ki"})


def test_the_api_has_the_bounds_and_defaults_of_the_command_line() -> None:
    (body, *times), fields = (
        (http_limits.BODY_BYTES, http_limits.HEADER_SECONDS, http_limits.BODY_SECONDS, http_limits.READ_SECONDS),
        HttpLimits.model_fields,
    )
    made = HttpLimits()
    assert [
        quantity.whole(made.body_size),
        *map(duration.seconds, (made.header_timeout, made.body_timeout, made.read_timeout)),
    ] == [body.default, *(time.default for time in times)]
    assert len(fields) == 1 + len(times)


def test_with_tls_the_port_has_another_name_everywhere_so_that_no_pod_gets_the_others_traffic() -> None:
    made = bodies(engine=TLS, networking=ROUTE)
    pod = made[Resource.Deployment]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert [port["name"] for port in container["ports"]] == ["https", "admin"]
    assert {probe["httpGet"]["port"] for name, probe in container.items() if name.endswith("Probe")} == {"admin"}
    assert made[Resource.Service]["spec"]["ports"] == [
        {"name": "https", "port": 443, "protocol": "TCP", "targetPort": "https", "appProtocol": "https"}
    ]
    (rule,) = made[Resource.HTTPRoute]["spec"]["rules"]
    assert [backend["port"] for backend in rule["backendRefs"]] == [443]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["graphpod-tls"]["secret"]["secretName"] == "cert"


def test_while_pods_are_replaced_the_policy_admits_clients_of_both() -> None:
    installed = Installation(IMAGES, access=Access.read(GIVEN))

    def ports(engine: dict[str, Any]) -> list[str]:
        wanted = desire(PlanInput(Service.of(inference_service(engine=engine)), installed))
        assert isinstance(wanted, Desired)
        (policy,) = [child.body for child in wanted.children if child.resource is Resource.NetworkPolicy]
        return [port["port"] for port in policy["spec"]["ingress"][0]["ports"]]

    assert (ports({}), ports(TLS)) == (["http"], ["https", "http"])
