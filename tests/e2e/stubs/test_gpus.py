"""GPUs that are not there: allocated, counted, withdrawn, and offered again to a kubelet that came back."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stubs import manifests
from stubs.deployed import Deployed, bring, device_plugin_image
from stubs.manifests import GPU
from testbed import Cluster, TestbedError
from testbed.host import record
from testbed.host.network import netns
from testbed.nodes.pause import IMAGE as PAUSE
from testbed.process import spawn
from tests.clusters import own_cluster
from tests.eventually import Eventually
from tests.places import Place, PodSecurity

COUNT = 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One of its own: its kubelet is killed."""
    with own_cluster("test-gpu", "node", nodes=1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def gpus(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Deployed:
    cluster.load(device_plugin_image(tmp_path_factory.mktemp("image")))
    place = Place(cluster, "gpus")
    place.create(PodSecurity.Privileged)
    return bring(cluster, manifests.device_plugin(place.namespace, COUNT))


@pytest.fixture
def place(cluster: Cluster, gpus: Deployed, eventually: Eventually) -> Iterator[Place]:
    """An empty namespace, and all GPUs free and well."""
    for name in gpus.control("GET", "/devices"):
        gpus_are(gpus, name, "Healthy")
    eventually(lambda: allocatable(cluster) == str(COUNT), timeout=60)
    place = Place(cluster, "default")
    eventually.places.append((cluster, place.namespace))
    yield place
    place.kubectl("delete", "pods", "--all", "--grace-period=0", "--force")


def gpus_are(gpus: Deployed, name: str, health: str) -> None:
    gpus.control("PUT", f"/devices/{name}", health.encode())


def allocatable(cluster: Cluster) -> str:
    return json.loads(cluster.kubectl("get", "node", "node1", "-o", "json"))["status"]["allocatable"].get(GPU, "")


def pod(name: str, count: int) -> str:
    """A pod that wants so many GPUs."""
    container = {"name": "pause", "image": PAUSE, "resources": {"limits": {GPU: count}}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def answers(ask: Callable[[], int]) -> int | None:
    """What a kubelet says, None while there is none to ask."""
    try:
        return ask()
    except TestbedError:
        return None


def running(place: Place, name: str) -> bool:
    return place.get("pod", name)["status"]["phase"] == "Running"


def visible(place: Place, name: str) -> list[str]:
    """What NVIDIA_VISIBLE_DEVICES says in the environment of a pod's process."""
    uid = place.get("pod", name)["metadata"]["uid"]
    found = [entry for process in Path("/proc").glob("[0-9]*") for entry in environment(process, uid)]
    [names] = {entry.partition("=")[2] for entry in found if entry.startswith("NVIDIA_VISIBLE_DEVICES=")}
    return names.split(",")


def environment(process: Path, uid: str) -> list[str]:
    """The variables of a process that belongs to the pod of this uid; none of another's or of one that ended."""
    try:
        if uid not in (process / "cgroup").read_text():
            return []
        return (process / "environ").read_text().split("\0")
    except OSError:
        return []


def test_a_pod_gets_the_gpus_it_limits_itself_to_and_sees_their_names(place: Place, eventually: Eventually) -> None:
    place.kubectl("create", "-f", "-", input=pod("one", 1))
    eventually(lambda: running(place, "one"))
    assert set(visible(place, "one")) < {"node1-gpu-0", "node1-gpu-1"}


def test_one_gpu_too_many_leaves_a_pod_waiting_with_the_schedulers_words(place: Place, eventually: Eventually) -> None:
    place.kubectl("create", "-f", "-", input=pod("both", COUNT))
    eventually(lambda: running(place, "both"))
    place.kubectl("create", "-f", "-", input=pod("late", 1))

    def words() -> str:
        conditions: list[dict[str, Any]] = place.get("pod", "late")["status"].get("conditions", [])
        return next((c["message"] for c in conditions if c.get("reason") == "Unschedulable"), "")

    assert f"Insufficient {GPU}" in eventually(lambda: words() or None)
    place.kubectl("delete", "pod", "both")
    eventually(lambda: running(place, "late"))


@pytest.mark.slow  # the kubelet tells the node's capacity every ten seconds
def test_a_gpu_that_fell_ill_is_not_given_out_until_it_is_well(
    cluster: Cluster, place: Place, gpus: Deployed, eventually: Eventually
) -> None:
    gpus_are(gpus, "node1-gpu-1", "Unhealthy")
    eventually(lambda: allocatable(cluster) == str(COUNT - 1), timeout=60)
    gpus_are(gpus, "node1-gpu-1", "Healthy")
    eventually(lambda: allocatable(cluster) == str(COUNT), timeout=60)


def test_the_gpus_are_offered_again_to_a_kubelet_that_came_back(
    cluster: Cluster, place: Place, eventually: Eventually
) -> None:
    found = record.load(cluster.name)
    assert found is not None
    kubelet = next(c for c in found.components if c.name == "kubelet-node1")
    words = Path(f"/proc/{kubelet.process.pid}/cmdline").read_text().rstrip("\0").split("\0")
    os.kill(kubelet.process.pid, signal.SIGKILL)
    namespaces = [f"--net=/run/netns/{netns(cluster.name, 1)}", f"--mount={cluster.folder}/mounts/node1"]
    spawn(["nsenter", *namespaces, *words], Path(kubelet.log))

    def registered() -> int:
        return cluster.kubectl("-n", "gpus", "logs", "daemonset/device-plugin").count(f"registered {COUNT} of {GPU}")

    # a pod that came earlier would be refused for good: the kubelet knows of no device until one is offered
    eventually(lambda: answers(registered) == 2, timeout=60)
    eventually(lambda: allocatable(cluster) == str(COUNT), timeout=60)
    place.kubectl("create", "-f", "-", input=pod("after", COUNT))
    eventually(lambda: running(place, "after"), timeout=90)
    assert sorted(visible(place, "after")) == ["node1-gpu-0", "node1-gpu-1"]
