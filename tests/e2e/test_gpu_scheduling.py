"""Services of several GPUs on a real node with eight, by a device plugin: what does not fit waits, and says for what.

There are no GPUs behind the plugin: engines of these services cannot start, and nothing here waits for one.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from demo.chart import install, wait_operator
from demo.images import provide
from demo.local import Testbed
from graphpod_operator.api.names import GPU
from stubs import manifests
from stubs.deployed import bring, device_plugin_image
from testbed import Cluster
from tests.clusters import own_cluster
from tests.eventually import Eventually
from tests.places import Place, PodSecurity

pytestmark = pytest.mark.slow

COUNT = 8
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "weights"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A node with eight devices, and our operator."""
    with own_cluster("test-eight", "node", nodes=1) as cluster:
        provide(cluster, print)
        cluster.load(device_plugin_image(tmp_path_factory.mktemp("image")))
        plugin = Place(cluster, "gpus")
        plugin.create(PodSecurity.Privileged)
        bring(cluster, manifests.device_plugin(plugin.namespace, COUNT))
        install(Testbed(cluster))
        wait_operator(cluster)
        yield cluster


def several(tensor: int, pipeline: int = 1) -> dict[str, Any]:
    return {
        "model": {"uri": "pvc://weights/model"},
        "parallelism": {"tensor": tensor, "pipeline": pipeline},
        "resources": {
            "limits": {GPU: tensor * pipeline, "memory": "8Gi"},
            "requests": {"cpu": "10m", "memory": "64Mi"},
        },
    }


def node_of(place: Place, name: str) -> str:
    """Where the pod of a service is; empty while it has no node."""
    pods = place.pods(name)
    return str(pods[0]["spec"].get("nodeName", "")) if len(pods) == 1 else ""


def test_of_services_with_two_four_and_four_gpus_the_third_waits_for_those_that_are_free(
    cluster: Cluster, eventually: Eventually
) -> None:
    place = Place(cluster, "several")
    place.create()
    eventually.places.append((cluster, place.namespace))
    place.post("pvc", CLAIM)
    eventually(lambda: cluster.read("/api/v1/nodes/node1")["status"]["allocatable"].get(GPU) == str(COUNT), timeout=60)

    place.apply("two", **several(2))
    place.apply("four", **several(2, 2))
    for name in ("two", "four"):
        eventually(lambda name=name: node_of(place, name) == "node1", timeout=60)
    place.apply("late", **several(4))
    words = eventually(place.reached("Scheduled", "False", "Unschedulable", "late"), timeout=60)
    print(place.kubectl("get", "gisvc", "-o", "wide"), words)
    assert f"it needs 4 free {GPU} of one node: 0/1 nodes are available: 1 Insufficient {GPU}" in words
    assert words.endswith("for what is free: kubectl describe nodes")
    described = cluster.kubectl("describe", "node", "node1")
    (requested,) = [
        line.split() for line in described.splitlines() if line.split()[:1] == [GPU] and len(line.split()) == 3
    ]
    assert requested == [GPU, "6", "6"], "what that command shows"
    assert place.pods("late")[0]["status"]["phase"] == "Pending"

    place.remove("four")
    eventually(lambda: node_of(place, "late") == "node1", timeout=90)
    assert "Unschedulable" not in str(place.status("late")["conditions"])
