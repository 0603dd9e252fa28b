"""A service on a GPU: its pod asks for one, runs the image that can use it, and its engine captures by CUDA."""

from typing import Any

from graphpod_operator.api.names import GPU
from tests.api.operator.process import IMAGES
from tests.sim.conftest import SimPlace

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


def test_more_gpus_than_an_engine_uses_are_refused_and_nothing_is_reserved(place: SimPlace, eventually) -> None:
    place.bring_up(resources={"limits": {GPU: 2}})
    assert GPU in eventually(place.reached("Accepted", "False", "FeatureNotBuilt"))
    assert place.pods() == []
