"""What runs in a testbed: each component's purpose and address, each level's use, as tables."""

from dataclasses import dataclass

from testbed.host.network import Addresses
from testbed.level import Level


@dataclass(frozen=True)
class Part:
    """`listens` may name {api}, {dns}, {node} (addresses) and {place} (the node)."""

    purpose: str
    listens: str


# By component name, those of a node without its `-node1`.
PARTS = {
    "etcd": Part("stores every object", "127.0.0.1:2379, inside"),
    "kube-apiserver": Part("answers kubectl: who may do what, is it valid", "https://{api}:6443"),
    "kube-controller-manager": Part("Deployments to pods, garbage collection, autoscaling", "127.0.0.1:10257, inside"),
    "kube-scheduler": Part("gives each pod a node", "127.0.0.1:10259, inside"),
    "coredns": Part("names of services", "{api}:53, to pods {dns}"),
    "lws": Part("groups of pods, where a test wants them", "127.0.0.1:9443, inside"),
    "kwok": Part("plays kubelet for nodes that do not exist", "127.0.0.1:10247, inside"),
    "containerd": Part("runs containers, keeps images", "{place}/containerd.sock"),
    "kubelet": Part("starts and probes its node's pods; logs, exec", "{node}:10250"),
    "kube-proxy": Part("leads a service's address to its pods", "nftables of {place}"),
}
UNKNOWN = Part("", "")


@dataclass(frozen=True)
class Use:
    runs: str
    good_for: str


USES = {
    Level.API: Use(
        "etcd, API server, controller manager", "custom resources, RBAC, helm, an operator under a debugger"
    ),
    Level.SIM: Use("+ scheduler, and N nodes played by KWOK", "scale, GPU scheduling, faults; no container runs"),
    Level.NODE: Use("+ scheduler, DNS, and N real nodes", "pods that do run: images, probes, volumes, limits, drains"),
}


def part(component: str) -> Part:
    """`kubelet-node1` is a kubelet. Something this table does not know has no words, and that is no error."""
    return PARTS.get(component) or PARTS.get(component.rpartition("-node")[0], UNKNOWN)


def listens(component: str, addresses: Addresses) -> str:
    index = component.rpartition("-node")[2]
    node = int(index) if index.isdigit() else 0
    return part(component).listens.format(
        api=addresses.api,
        dns=addresses.dns,
        node=addresses.node(node),
        place=f"node{node}" if node else "the control plane",
    )
