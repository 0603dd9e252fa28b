"""The NetworkPolicy: who may reach the pods. Questions come from the namespace and the gateways, and the admin port,
which shows more than a client should know, is for the operator and for monitoring.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphpod_operator.api.spec import Spec
from graphpod_operator.install.network_access import Access, Peer
from graphpod_operator.intent.model_uri import ModelUri
from graphpod_operator.intent.source_hosts import SourceHost, host_of, source_hosts
from graphpod_operator.kube.resources import Resource
from graphpod_operator.render.download_policy import egress
from graphpod_operator.render.owner import Body, Owner
from graphpod_operator.render.service import HTTP, api_port

NEIGHBOURS: Peer = {"podSelector": {}}
"""Every pod of the service's own namespace."""


def network_policy(owner: Owner, access: Access, gateways: Iterable[str] = ()) -> Body:
    """The policy of one service: what is not let in here is kept out, wherever the cluster's network enforces it.
    `gateways` are the namespaces of others that its route leads through. Pods that stream their weights hold a Secret:
    they go where a download of it goes, and to their traces' collector.
    """
    streams = owner.spec.model.stream
    out = {"egress": [*egress(_sources(owner.spec), access), *_each_other(owner, "to")]} if streams else {}
    return owner.child(
        Resource.NetworkPolicy,
        owner.name,
        spec={
            "podSelector": owner.pod_selector,
            "policyTypes": ["Ingress", *(["Egress"] if out else [])],
            "ingress": [
                _let_in(_api_ports(owner.spec), (NEIGHBOURS, *access.http, *map(_of, gateways))),
                _let_in(("admin",), access.admin),
                *_each_other(owner, "from"),
            ],
            **out,
        },
    )


def _sources(spec: Spec) -> tuple[SourceHost, ...]:
    """The hosts that a pod which streams its weights connects to by itself."""
    found = source_hosts(ModelUri.parse(spec.model.uri), "spec.model.uri", spec)
    tracing = spec.engine.tracing
    collector = host_of("spec.engine.tracing.endpoint", tracing.endpoint) if tracing is not None else None
    return found if collector is None else (*found, collector)


def _each_other(owner: Owner, direction: str) -> tuple[Body, ...]:
    """The pods of a group, at any port: NCCL and gloo choose their own. The groups of a service have labels that
    differ by a number alone, so all of them are let in.
    """
    return ({direction: [{"podSelector": owner.pod_selector}]},) if owner.grouped else ()


def _of(namespace: str) -> Peer:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}


def _api_ports(spec: Spec) -> tuple[str, ...]:
    """With TLS pods of an earlier revision may still have the other name."""
    port = api_port(spec)
    return (port.name,) if port is HTTP else (port.name, HTTP.name)


def _let_in(ports: tuple[str, ...], peers: tuple[Peer, ...]) -> Body:
    return {"from": list(peers), "ports": [{"port": port, "protocol": "TCP"} for port in ports]}
