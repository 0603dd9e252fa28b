"""A service on a GPU: its pod asks for one, runs the image that can use it, and its engine captures by CUDA."""

from graphpod_operator.resolve.resolver_input import GPU
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


def test_more_gpus_than_an_engine_uses_are_refused_and_nothing_is_reserved(place: SimPlace, eventually) -> None:
    place.bring_up(resources={"limits": {GPU: 2}})
    assert GPU in eventually(place.reached("Accepted", "False", "FeatureNotBuilt"))
    assert place.pods() == []
