"""The Service in front of the pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from graphpod_operator.api.spec import Spec
from graphpod_operator.kube.resources import Resource
from graphpod_operator.render.owner import Body, Owner

API_PATH = "/v1"
"""Below it is the OpenAI API, and nothing else."""


class ApiPort(NamedTuple):
    """The API port: its name at pods and Service, which is the scheme of its URL, and its number at the Service."""

    name: str
    number: int


HTTP, HTTPS = ApiPort("http", 80), ApiPort("https", 443)


def api_port(spec: Spec) -> ApiPort:
    """Of the pods that this spec makes. The two have different names, so that a Service never leads to pods of an
    earlier revision that speak the other one.
    """
    return HTTPS if spec.engine.tls_secret_ref is not None else HTTP


def written_port(spec: Mapping[str, Any]) -> ApiPort:
    """The same, of a spec as it is stored, which may break the schema."""
    engine = spec.get("engine")
    return HTTPS if isinstance(engine, Mapping) and engine.get("tlsSecretRef") is not None else HTTP


def service(owner: Owner) -> Body:
    """A ClusterIP Service: port 80 or 443 to the pods' API port, over IPv4 and IPv6 where the cluster has both."""
    name, number = port = api_port(owner.spec)
    of_tls = {"appProtocol": "https"} if port is HTTPS else {}
    return owner.child(
        Resource.Service,
        owner.name,
        spec={
            "type": "ClusterIP",
            "ipFamilyPolicy": "PreferDualStack",
            "selector": owner.selector,
            "ports": [{"name": name, "port": number, "protocol": "TCP", "targetPort": name, **of_tls}],
        },
    )


def url(name: str, namespace: str, port: ApiPort = HTTP) -> str:
    """Address of the OpenAI API inside the cluster."""
    return f"{port.name}://{name}.{namespace}.svc{API_PATH}"
