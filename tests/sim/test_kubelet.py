"""What the simulated nodes do with pods that are not ours."""

import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from testbed import Cluster
from tests.places import Manifest, Place, PodSecurity


@dataclass(frozen=True)
class Pods:
    """Bare pods of one container in a namespace that takes any."""

    place: Place

    def run(self, name: str, gpus: int = 0) -> None:
        container = {"name": "main", "image": "example/image:1"}
        if gpus:
            container |= {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}
        self.place.kubectl("create", "-f", "-", input=json.dumps(pod))

    def status(self, name: str) -> Manifest:
        status: Manifest = self.place.get("pod", name)["status"]
        return status

    def condition(self, name: str, kind: str) -> Manifest:
        return next((row for row in self.status(name).get("conditions", ()) if row["type"] == kind), {})


@pytest.fixture
def pods(make_place: Callable[..., Place], sim_cluster: Cluster) -> Pods:
    place = make_place(sim_cluster, PodSecurity.Privileged)
    # before that a bare pod is refused, and nobody asks again for it
    place.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=30s")
    return Pods(place)


def test_a_pod_without_probes_runs_and_is_ready_at_once(pods: Pods, eventually) -> None:
    pods.run("plain")
    eventually(lambda: pods.condition("plain", "Ready").get("status") == "True")
    status = pods.status("plain")
    assert status["phase"] == "Running"
    assert status["containerStatuses"][0]["containerID"].startswith("containerd://")


def test_gpus_are_offered_and_run_out(pods: Pods, eventually) -> None:
    pods.run("fits", gpus=8)
    pods.run("too-large", gpus=9)
    eventually(lambda: pods.status("fits")["phase"] == "Running")
    eventually(lambda: "Insufficient nvidia.com/gpu" in pods.condition("too-large", "PodScheduled").get("message", ""))
