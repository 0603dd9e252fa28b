"""One node: containerd, kubelet and kube-proxy, with folder, cgroup and addresses of their own."""

import json
from dataclasses import dataclass
from pathlib import Path

from testbed.control.control_plane import Binary
from testbed.control.pki import Identities
from testbed.control.service_proxy import ServiceProxy
from testbed.host.kernel import CGROUPS, V2_CONTROLLERS, unified
from testbed.host.network import Addresses, netns
from testbed.nodes import kept_layers
from testbed.nodes.node_images import NodeImages
from testbed.nodes.pause import IMAGE

VOLUMES = 12
CNI = "/usr/lib/cni"


@dataclass(frozen=True)
class Node:
    testbed: str
    index: int  # from 1
    folder: Path
    addresses: Addresses
    identities: Identities
    binary: Binary

    @property
    def name(self) -> str:
        return f"node{self.index}"

    @property
    def cgroup(self) -> str:
        return netns(self.testbed, self.index)

    @property
    def socket(self) -> Path:
        return self.folder / "containerd.sock"

    @property
    def images(self) -> NodeImages:
        return NodeImages(self.socket)

    @property
    def volumes(self) -> tuple[Path, ...]:
        """Folders behind the node's local PersistentVolumes."""
        return tuple(self.folder / "volumes" / f"{n:02}" for n in range(1, VOLUMES + 1))

    def write_files(self) -> None:
        for folder in (self.folder / "cni", self.folder / "kubelet", *self.volumes):
            folder.mkdir(parents=True)
        kept_layers.lay(self.folder / "containerd")
        (self.folder / "containerd.toml").write_text(containerd_config(self.folder))
        network = cni_config(self.folder, self.addresses, self.index)
        (self.folder / "cni" / "10-testbed.conflist").write_text(json.dumps(network))
        (self.folder / "kubelet.json").write_text(json.dumps(self._kubelet_config(), indent=1))
        (self.folder / "kube-proxy.json").write_text(json.dumps(self._proxy.config(), indent=1))

    def containerd(self) -> list[str | Path]:
        return ["containerd", "--config", self.folder / "containerd.toml"]

    def kubelet(self) -> list[str | Path]:
        return [
            self.binary("kubelet"),
            f"--config={self.folder}/kubelet.json",
            f"--kubeconfig={self.identities.kubeconfig(f'system:node:{self.name}')}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.addresses.node(self.index)}",
            f"--root-dir={self.folder}/kubelet",
            f"--cert-dir={self.folder}/kubelet-pki",
        ]

    def kube_proxy(self) -> list[str | Path]:
        return [self.binary("kube-proxy"), f"--config={self.folder}/kube-proxy.json"]

    @property
    def _proxy(self) -> ServiceProxy:
        return ServiceProxy(self.name, self.addresses, self.identities)

    def _kubelet_config(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cgroup}",
            "failCgroupV1": False,  # kubelets from 1.35 on refuse cgroup v1 otherwise
            "failSwapOn": False,
            "address": self.addresses.node(self.index),
            "readOnlyPort": 0,
            "healthzBindAddress": "127.0.0.1",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.identities.ca)},
            },
            "authorization": {"mode": "Webhook"},
            "clusterDNS": [self.addresses.dns],
            "clusterDomain": "cluster.local",
            "resolvConf": "",
            "makeIPTablesUtilChains": False,
            "serializeImagePulls": False,
            "podLogsDir": f"{self.folder}/pod-logs",
            # images are loaded by hand and cannot be pulled again: never collect them, never evict for a full disk
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        }

    # --- effects

    def make_cgroup(self, root: Path = CGROUPS) -> None:
        """The node's root cgroup in every hierarchy, before the kubelet looks for it."""
        if unified(root):
            (root / "cgroup.subtree_control").write_text(" ".join(f"+{c}" for c in V2_CONTROLLERS))
            (root / self.cgroup).mkdir()
            return
        for hierarchy in sorted(p for p in root.iterdir() if (p / "cgroup.procs").exists()):
            (hierarchy / self.cgroup).mkdir()
            for setting in ("cpuset.cpus", "cpuset.mems"):  # empty in a new group, and then it can hold no process
                if (hierarchy / setting).exists():
                    (hierarchy / self.cgroup / setting).write_text((hierarchy / setting).read_text())


def containerd_config(folder: Path) -> str:
    """containerd 1.6's configuration; every path of its own lies in `folder`."""
    return f"""\
version = 2
root = "{folder}/containerd"
state = "{folder}/containerd-state"

[grpc]
  address = "{folder}/containerd.sock"

[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{IMAGE}"
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  netns_mounts_under_state_dir = true

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI}"
    conf_dir = "{folder}/cni"

  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = "{folder}/runc"
      SystemdCgroup = false
"""


def cni_config(folder: Path, all_of: Addresses, node: int) -> dict[str, object]:
    """A bridge whose routes the other namespaces know, hence no masquerading."""
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": all_of.pods(node), "gateway": all_of.pod_gateway(node)}]],
        "routes": [{"dst": all_of.everywhere}],
        "dataDir": f"{folder}/cni-addresses",
    }
    bridge = {"type": "bridge", "bridge": "pods0", "isGateway": True, "ipMasq": False, "hairpinMode": True}
    return {"cniVersion": "1.0.0", "name": "testbed", "plugins": [{**bridge, "ipam": addresses}, {"type": "loopback"}]}
