"""The NetworkPolicy of a Job that downloads weights: to its sources and to DNS, and from the operator to its progress.

It belongs to the Job and goes with it. A network applies it to pods that run already, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphpod_operator.api.names import FOLDER_LABEL, MANAGED_BY
from graphpod_operator.install.network_access import Access, Peer
from graphpod_operator.intent.asked_downloads import Download
from graphpod_operator.intent.source_hosts import SourceHost
from graphpod_operator.kube.resources import Resource
from graphpod_operator.render.owner import Body

DNS: Body = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}
"""To wherever a cluster has it: its own pods, or a cache on the node."""


def download_policy(namespace: str, download: Download, uid: str, hosts: Iterable[SourceHost], access: Access) -> Body:
    """The policy of a Job with this `uid`. `hosts` are those that its URI and settings name."""
    job = {"apiVersion": Resource.Job.api_version, "kind": Resource.Job.kind, "name": download.job, "uid": uid}
    return {
        "apiVersion": Resource.NetworkPolicy.api_version,
        "kind": Resource.NetworkPolicy.kind,
        "metadata": {
            "name": download.job,
            "namespace": namespace,
            "labels": {MANAGED_BY[0]: MANAGED_BY[1], FOLDER_LABEL: download.folder},
            "ownerReferences": [job],
        },
        "spec": {
            "podSelector": {"matchLabels": {FOLDER_LABEL: download.folder}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [*access.admin], "ports": [{"port": "admin", "protocol": "TCP"}]}],
            "egress": egress(hosts, access),
        },
    }


def egress(hosts: Iterable[SourceHost], access: Access) -> list[Body]:
    """Rules of a pod that reads from `hosts`: DNS, where the installer lets downloads go, and Services of theirs."""
    known = tuple(hosts)
    inside = sorted({one.namespace for one in known if one.namespace is not None})
    ports = sorted({*access.download_ports, *(one.port for one in known if one.namespace is None)})
    rules: list[Body] = [DNS]
    if access.downloads:
        rules.append({"to": [*access.downloads], "ports": [{"port": port, "protocol": "TCP"} for port in ports]})
    if inside:  # a Service's pods have other ports than the Service, which are unknown here
        rules.append({"to": [_pods_of(place) for place in inside], "ports": [{"protocol": "TCP"}]})
    return rules


def _pods_of(namespace: str) -> Peer:
    """Every pod of a namespace; empty stands for the download's own."""
    if not namespace:
        return {"podSelector": {}}
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
