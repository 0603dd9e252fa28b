from enum import StrEnum


class Level(StrEnum):
    """How much of a cluster runs. `NODE` contains everything of `API`."""

    API = "api"  # etcd, kube-apiserver, kube-controller-manager
    NODE = "node"  # + kube-scheduler, CoreDNS, and on every node containerd, kubelet, kube-proxy
