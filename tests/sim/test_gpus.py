"""A service on a GPU: its pod asks for one, runs the image that can use it, and its engine captures by CUDA."""

from typing import Any

from graphpod_operator.api.names import GPU
from testbed import Cluster
from tests.api.operator.process import IMAGES
from tests.sim.conftest import SimPlace
from tests.sim.history import History

ONE = {"limits": {GPU: 1}}


def test_a_service_on_a_gpu_becomes_ready_with_graphs_of_cuda(place: SimPlace, eventually) -> None:
    place.bring_up(resources=ONE)
    eventually(place.reached("Ready", "True", "Ready"))
    (container,) = place.pod()["spec"]["containers"]
    assert container["resources"]["limits"][GPU] == "1"
    assert container["image"] == IMAGES.gpu
    graph = place.status()["graph"]
    assert (graph["prefill"]["effective"], graph["decode"]["effective"]) == ("Breakable", "Full")
    assert graph["backend"] == "CudaGraph"


def test_a_service_waits_for_its_gpus_of_one_node_and_says_how_many(place: SimPlace, eventually) -> None:
    """A node has eight: of three services with 2, 4 and 4 of them the third waits until four are free."""
    node = place.cluster.read("/api/v1/nodes")["items"][-1]["metadata"]
    placement = {"nodeSelector": {"kubernetes.io/hostname": node["labels"]["kubernetes.io/hostname"]}}

    def of(tensor: int, pipeline: int) -> dict[str, Any]:
        ranks = {"tensor": tensor, "pipeline": pipeline}
        return {"parallelism": ranks, "resources": {"limits": {GPU: tensor * pipeline}}, "placement": placement}

    place.bring_up("two", **of(2, 1))
    place.bring_up("four", **of(2, 2))
    for name in ("two", "four"):
        eventually(place.reached("Ready", "True", "Ready", name))
    place.bring_up("late", **of(4, 1))
    words = eventually(place.reached("Scheduled", "False", "Unschedulable", "late"))
    assert f"it needs 4 free {GPU} of one node: 0/" in words
    assert "for what is free: kubectl describe nodes" in words
    place.remove("four")
    eventually(place.reached("Ready", "True", "Ready", "late"))


def free_node(cluster: Cluster) -> str:
    """The hostname of a node of which no pod has a GPU."""
    pods = cluster.read("/api/v1/pods")["items"]
    on_gpus = [pod for pod in pods if GPU in pod["spec"]["containers"][0]["resources"].get("limits", {})]
    taken = {pod["spec"].get("nodeName") for pod in on_gpus}
    nodes = [node["metadata"] for node in cluster.read("/api/v1/nodes")["items"]]
    free = (node["labels"]["kubernetes.io/hostname"] for node in nodes if node["name"] not in taken)
    return str(next(free))


def test_a_rollout_that_replaces_waits_for_the_gpus_of_the_old_pod_and_is_never_unschedulable(
    place: SimPlace, eventually
) -> None:
    """One node has as many GPUs as a pod takes, and the old pod drains for some seconds."""
    node = {"nodeSelector": {"kubernetes.io/hostname": free_node(place.cluster)}}
    spec = {"parallelism": {"tensor": 8}, "resources": {"limits": {GPU: 8}}, "placement": node}
    place.bring_up(**spec)
    eventually(place.reached("Ready", "True", "Ready"))
    (old,) = place.pods()
    hold = {"metadata": {"finalizers": ["example.com/hold"]}}
    place.merge("pod", old["metadata"]["name"], hold)
    with History.of(place) as history:
        place.bring_up(engine={"maxBatch": 4}, **spec)
        words = eventually(place.reached("Ready", "False", "PreviousDraining"))
        assert f"waits for 8 {GPU} that pod {old['metadata']['name']} holds until it has gone" in words
        place.merge("pod", old["metadata"]["name"], {"metadata": {"finalizers": None}})
        eventually(place.reached("Ready", "True", "Ready"))
        eventually(lambda: history.seen[-1]["status"]["phase"] == "Ready")
    reasons = {row["reason"] for found in history.seen for row in found["status"]["conditions"]}
    assert "PreviousDraining" in reasons
    assert "Unschedulable" not in reasons
    assert not [event for event in place.all("event") if event["reason"] == "Unschedulable"]


def test_more_gpus_than_an_engine_uses_are_refused_and_nothing_is_reserved(place: SimPlace, eventually) -> None:
    place.bring_up(resources={"limits": {GPU: 2}})
    assert GPU in eventually(place.reached("Accepted", "False", "FeatureNotBuilt"))
    assert place.pods() == []
