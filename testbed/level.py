from enum import StrEnum


class Level(StrEnum):
    """How much of a cluster runs. `SIM` and `NODE` contain everything of `API`."""

    API = "api"  # etcd, kube-apiserver, kube-controller-manager
    SIM = "sim"  # + kube-scheduler, and KWOK, which plays the kubelets of simulated nodes
    NODE = "node"  # + kube-scheduler, CoreDNS, and on every node containerd, kubelet, kube-proxy
