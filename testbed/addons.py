"""Objects that a cluster offers from its first minute: cluster DNS and a default StorageClass with volumes."""

import socket
import struct
from collections.abc import Iterable
from typing import Any

from testbed.network import Addresses
from testbed.node import Node

STORAGE_CLASS = "testbed"
VOLUME_SIZE = "4Gi"

Manifest = dict[str, Any]


def manifests(addresses: Addresses, nodes: Iterable[Node]) -> Manifest:
    items = [*_dns(addresses), _storage_class(), *(volume for node in nodes for volume in _volumes(node))]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _dns(addresses: Addresses) -> list[Manifest]:
    """CoreDNS runs beside the API server, so its Service has no selector and an EndpointSlice by hand."""
    name = "system:coredns"
    watch = ["list", "watch"]
    service = {"name": "kube-dns", "namespace": "kube-system"}
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    return [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": [
                {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": watch},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": watch},
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {**service, "labels": {"k8s-app": "kube-dns"}},
            "spec": {"clusterIP": addresses.dns, "ports": ports},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**service, "labels": {"kubernetes.io/service-name": "kube-dns"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [addresses.api]}],
            "ports": ports,
        },
    ]


def _storage_class() -> Manifest:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def _volumes(node: Node) -> list[Manifest]:
    """Local volumes made in advance; a released one stays released until `down`."""
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name]}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"{node.name}-{path.name}"},
            "spec": {
                "storageClassName": STORAGE_CLASS,
                "capacity": {"storage": VOLUME_SIZE},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "local": {"path": str(path)},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
            },
        }
        for path in node.volumes
    ]


def question(name: str) -> bytes:
    """A DNS query for the IPv4 address of `name` (RFC 1035 §4.1)."""
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.strip(".").split("."))
    return struct.pack(">6H", 1, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", 1, 1)


def answered(message: bytes) -> bool:
    """Does this DNS answer hold a record and no error?"""
    flags, _, answers = struct.unpack(">3H", message[2:8])
    return bool(flags & 0x800F == 0x8000 and answers > 0)


def resolves(server: str, name: str, timeout: float = 0.5) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(timeout)
        s.connect((server, 53))
        try:
            s.send(question(name))
            return answered(s.recv(512))
        except (TimeoutError, ConnectionRefusedError):
            return False  # not listening yet
