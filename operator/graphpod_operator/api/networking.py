"""`spec.networking`: how clients outside the cluster reach a service."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from graphpod_operator.api.base import ATOMIC, ApiModel, Integer, ObjectName, Ruled, ValidationRule, matches

GATEWAY_DEFAULT = "GatewayDefault"
"""Instead of a duration: what the gateway does by itself."""

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_HOST = rf"{_LABEL}(\.{_LABEL})*"
_SHORT_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
"""A label of a host name has 63 characters at most."""
_SAME = (
    "q.name == p.name && has(q.__namespace__) == has(p.__namespace__) && "
    "(!has(p.__namespace__) || q.__namespace__ == p.__namespace__)"
)
_ADDRESS = "^[0-9.]+$"
_is_address = matches(_ADDRESS)


class GatewayRef(ApiModel):
    """A Gateway, or one of its listeners."""

    name: Annotated[ObjectName, Field(pattern=f"^{_HOST}$")] = Field(
        description="Name of the Gateway. Required, no default."
    )
    namespace: str | None = Field(
        None,
        min_length=1,
        max_length=63,
        pattern=f"^{_LABEL}$",
        description="Namespace of the Gateway. The NetworkPolicy admits its pods if the chart's "
        "networkPolicy.routeNamespaces lists it. "
        "Default: that of the service.",
    )
    section_name: str | None = Field(
        None,
        min_length=1,
        max_length=253,
        pattern=f"^{_HOST}$",
        description="Name of the listener. Default: every listener that admits the route.",
    )
    port: Integer | None = Field(
        None, ge=1, le=65535, description="Port of the listeners, where the gateway supports that. Default: any."
    )


def _each_once(refs: tuple[GatewayRef, ...]) -> bool:
    """Whether no Gateway is named twice, unless each time another listener of it."""
    gateways = [(ref.name, ref.namespace) for ref in refs]
    listeners = [(ref.name, ref.namespace, ref.section_name) for ref in refs]
    return all(
        gateways.count(gateway) == 1 or (ref.section_name is not None and listeners.count(listener) == 1)
        for ref, gateway, listener in zip(refs, gateways, listeners, strict=True)
    )


EACH_ONCE = ValidationRule(
    f"self.all(p, self.exists_one(q, {_SAME}) || "
    f"has(p.sectionName) && self.exists_one(q, {_SAME} && has(q.sectionName) && q.sectionName == p.sectionName))",
    "route.parentRefs: a Gateway that is named twice needs another sectionName each time",
    _each_once,
)
"""As the API server demands it of an HTTPRoute."""

Hostname = Annotated[
    str,
    Field(min_length=1, max_length=253, pattern=rf"^(\*\.)?{_SHORT_LABEL}(\.{_SHORT_LABEL})*$"),
    Ruled(
        ValidationRule(
            f"!self.matches('{_ADDRESS}')",
            "route.hostnames: a name, not an IP address: a gateway compares it with the request's Host",
            lambda host: not _is_address(host),
        )
    ),
]


class Route(ApiModel):
    """An HTTPRoute of the Gateway API: which gateways lead to the service, and by which address."""

    parent_refs: Annotated[tuple[GatewayRef, ...], Field(min_length=1, max_length=8), Ruled(EACH_ONCE)] = Field(
        description="Gateways, or listeners of Gateways, that route to the service. Required, no default.",
        json_schema_extra=ATOMIC,
    )
    hostnames: tuple[Hostname, ...] = Field(
        (),
        max_length=16,
        description="Hostnames in clients' requests, such as llm.example.com. Default: those of the gateway's "
        "listeners.",
        json_schema_extra=ATOMIC,
    )
    path_prefix: str | None = Field(
        None,
        max_length=253,
        pattern=r"^(/[A-Za-z0-9][-A-Za-z0-9_.]*)+$",
        description="Prefix of a client's path, such as /llama in /llama/v1; the gateway removes it. Default: nothing.",
    )
    request_timeout: str = Field(
        "0s",
        max_length=14,
        pattern=rf"^([0-9]{{1,5}}(ms|s|m|h)|{GATEWAY_DEFAULT})$",
        description="Longest time of a request, its answer included, such as 300s. 0s is no limit, for streams. "
        "GatewayDefault sets none, for gateways that do not support timeouts. Default: 0s.",
    )


class Networking(ApiModel):
    """How clients reach the service from outside the cluster."""

    route: Route | None = Field(
        None,
        description="Create an HTTPRoute of the Gateway API to the service's /v1, /tokenize, /detokenize, /version and "
        "/health. If the cluster does not serve the "
        "kind, the condition RouteReady says so, and the operator creates the route when it does. Default: none.",
    )
