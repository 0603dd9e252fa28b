"""Simulated nodes: objects that KWOK plays the kubelet for. The pods on them are status, and nothing runs.

What KWOK does is data, in Stage objects: `stages.yaml` is the kubelet; a test applies more.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.control.pki import Identities
from testbed.host.network import Addresses
from testbed.paths import PACKAGE

USER = "system:kwok"
STAGES = PACKAGE / "stages.yaml"
KINDS_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
STAGES_PATH = "/apis/kwok.x-k8s.io/v1alpha1/stages"
NODE_LIMIT = 1000
SIMULATED = "kwok.x-k8s.io/node"
"""Annotation of the nodes that KWOK manages. A node that loses it is lost: lease expired, pods left as they are."""

CAPACITY = {"cpu": "256", "memory": "2Ti", "pods": "10000", "ephemeral-storage": "4Ti", "nvidia.com/gpu": "8"}
PARALLEL = 16  # stages played at a time; KWOK's default of 4 is slower than its scheduler

# A lost node is noticed and given up faster than the 50 s and 300 s of a real cluster.
NODE_GRACE = 12  # s without a renewal of its lease until a node counts as lost; renewed four times in that time
EVICTION = 3  # s until the pods of a lost node are given up
APISERVER_FLAGS = [f"--default-{what}-toleration-seconds={EVICTION}" for what in ("not-ready", "unreachable")]
CONTROLLER_MANAGER_FLAGS = [f"--node-monitor-grace-period={NODE_GRACE}s", "--node-monitor-period=1s"]

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Simulation:
    folder: Path
    addresses: Addresses
    identities: Identities
    binary: Callable[[str], Path]

    @property
    def pods(self) -> str:
        """Pod addresses: the lower half of the cluster's range, whose upper half holds the services."""
        return self.addresses.cluster.replace("/16", "/17")

    def write_files(self) -> None:
        options = {
            "podPlayStageParallelism": PARALLEL,
            "nodePlayStageParallelism": PARALLEL,
            "nodeLeaseParallelism": PARALLEL,
            "cidr": self.pods,
            "nodeIP": self.addresses.api,
            "nodePort": 0,
            "serverAddress": "127.0.0.1:10247",
            "manageAllNodes": False,
            "manageNodesWithAnnotationSelector": f"{SIMULATED}=fake",
            "nodeLeaseDurationSeconds": NODE_GRACE,
            "enableCRDs": ["Stage"],
        }
        config = {"apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokConfiguration", "options": options}
        (self.folder / "kwok.json").write_text(json.dumps(config, indent=1))

    def kwok(self) -> list[str | Path]:
        kubeconfig = self.identities.kubeconfig(USER)
        # its usual level writes a line for every patch
        quiet = "--v=WARN"
        return [self.binary("kwok"), f"--config={self.folder}/kwok.json", f"--kubeconfig={kubeconfig}", quiet]


def node(index: int) -> Manifest:
    """A node as its kubelet registers it. Nothing taints it: at this level there are no others."""
    name = f"node{index}"
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {SIMULATED: "fake"}},
        "status": {"capacity": CAPACITY, "allocatable": CAPACITY},
    }


def stage_kind() -> Manifest:
    """The CustomResourceDefinition of Stage; KWOK itself says what it makes of a spec, in its log."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "stages", "singular": "stage", "kind": "Stage", "listKind": "StageList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "stages.kwok.x-k8s.io"},
        "spec": {
            "group": "kwok.x-k8s.io",
            "scope": "Cluster",
            "names": names,
            "versions": [version | {"subresources": {"status": {}}}],
        },
    }
