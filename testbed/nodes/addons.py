"""Objects that a cluster offers from its first minute: cluster DNS and two StorageClasses with volumes."""

import socket
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from testbed.host.network import Addresses, Family
from testbed.nodes.node import Node

STORAGE_CLASS = "testbed"
SHARED_CLASS = "testbed-shared"
SHARED_VOLUMES = 6
VOLUME_SIZE = "4Gi"

Manifest = dict[str, Any]


def manifests(addresses: Addresses, nodes: Iterable[Node], shared: Iterable[Path]) -> Manifest:
    """`shared`: the folders of `shared_volumes`, which must exist where the nodes look."""
    classes = [
        _storage_class(STORAGE_CLASS, "WaitForFirstConsumer", default=True),
        _storage_class(SHARED_CLASS, "Immediate", default=False),  # as network file systems have it
    ]
    own = [_own_volume(node, path) for node in nodes for path in node.volumes]
    items = [*_dns(addresses), *classes, *own, *(_shared_volume(path) for path in shared)]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def shared_volumes(testbed: Path) -> tuple[Path, ...]:
    """Folders that every node of the testbed sees under the same path."""
    return tuple(testbed / "shared" / f"{n:02}" for n in range(1, SHARED_VOLUMES + 1))


def _dns(addresses: Addresses) -> list[Manifest]:
    """CoreDNS runs next to the API server, so its Service has no selector and an EndpointSlice by hand."""
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
            "addressType": "IPv4" if addresses.family is Family.IPV4 else "IPv6",
            "endpoints": [{"addresses": [addresses.api]}],
            "ports": ports,
        },
    ]


def _storage_class(name: str, binding: str, default: bool) -> Manifest:
    marks = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}} if default else {}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, **marks},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": binding,
    }


def _own_volume(node: Node, path: Path) -> Manifest:
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name]}
    return _volume(f"{node.name}-{path.name}", STORAGE_CLASS, ["ReadWriteOnce"], path, here)


def _shared_volume(path: Path) -> Manifest:
    """A local volume, unlike a hostPath one, honours `fsGroup`; that it is local to every node is the trick."""
    anywhere = {"key": "kubernetes.io/hostname", "operator": "Exists"}
    modes = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"]
    return _volume(f"shared-{path.name}", SHARED_CLASS, modes, path, anywhere)


def _volume(name: str, storage_class: str, modes: list[str], path: Path, where: Manifest) -> Manifest:
    """Made in advance; a released one stays released until `down`."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "storageClassName": storage_class,
            "capacity": {"storage": VOLUME_SIZE},
            "accessModes": modes,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": str(path)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}},
        },
    }


def question(name: str, family: Family = Family.IPV4) -> bytes:
    """A DNS query for an address of `name` (RFC 1035 §4.1; of IPv6, RFC 3596)."""
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.strip(".").split("."))
    return (
        struct.pack(">6H", 1, 0x0100, 1, 0, 0, 0)
        + labels
        + b"\0"
        + struct.pack(">2H", 1 if family is Family.IPV4 else 28, 1)
    )


def answered(message: bytes) -> bool:
    """Does this DNS answer hold a record and no error?"""
    flags, _, answers = struct.unpack(">3H", message[2:8])
    return bool(flags & 0x800F == 0x8000 and answers > 0)


def resolves(server: str, name: str, timeout: float = 0.5) -> bool:
    family = Family.IPV6 if ":" in server else Family.IPV4
    with socket.socket(socket.AF_INET if family is Family.IPV4 else socket.AF_INET6, socket.SOCK_DGRAM) as s:
        s.settimeout(timeout)
        s.connect((server, 53))
        try:
            s.send(question(name, family))
            return answered(s.recv(512))
        except (TimeoutError, ConnectionRefusedError):
            return False  # not listening yet
