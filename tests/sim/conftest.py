"""A simulated cluster with our operator and stub engines; a namespace with weights for each test."""

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from stubs.engine.start_settings import ANNOTATIONS
from testbed import Cluster
from tests.api.operator.process import Operator, grant
from tests.clusters import own_cluster
from tests.crd import serve_crd
from tests.places import Manifest, Place
from tests.sim.fleet import FleetProcess
from tests.sim.weights import weights

WARMUP_SECONDS = "1"


@pytest.fixture(scope="package")
def sim_cluster() -> Iterator[Cluster]:
    """An API server with a scheduler and simulated nodes; started by the first test that asks."""
    with own_cluster("test-sim", "sim") as cluster:
        yield cluster


@pytest.fixture(scope="package")
def sim(sim_cluster: Cluster) -> Cluster:
    """The simulated cluster with our CRD, served."""
    serve_crd(sim_cluster)
    return sim_cluster


@pytest.fixture(scope="package")
def fleet(sim: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetProcess]:
    process = FleetProcess(sim, tmp_path_factory.mktemp("fleet") / "log")
    process.start()
    yield process
    assert process.stop() == 0, process.log.read_text()
    assert "Traceback" not in process.log.read_text(), process.log.read_text()


@pytest.fixture(scope="package")
def running_operator(sim: Cluster, fleet: FleetProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    grant(sim)
    operator = Operator(sim, fleet.url, tmp_path_factory.mktemp("operator") / "log")
    operator.start()
    yield operator
    assert operator.stop() == 0, operator.tail()
    assert "Traceback" not in operator.log.read_text(), operator.tail()


@pytest.fixture
def operator(running_operator: Operator, fleet: FleetProcess, eventually) -> Operator:
    """The operator; its log and the fleet's are evidence."""
    eventually.logs += [running_operator.log, fleet.log]
    return running_operator


@dataclass(frozen=True)
class SimPlace(Place):
    """A namespace in which services are brought up with engines that go wrong as asked."""

    def bring_up(self, name: str = "demo", fault: str = "", seconds: str = WARMUP_SECONDS, **spec: Any) -> None:
        """Apply an InferenceService with such engines."""
        self.apply(name, podTemplate=annotations(fault, seconds), **spec)

    def pod(self, name: str = "demo") -> Manifest:
        (pod,) = self.pods(name)
        return pod

    def restarts(self, name: str = "demo") -> int:
        count: int = self.pod(name)["status"]["containerStatuses"][0]["restartCount"]
        return count


@pytest.fixture(scope="module")
def open_place(sim: Cluster, running_operator: Operator) -> Iterator[Callable[[], SimPlace]]:
    """`open_place()`: a fresh namespace whose claim `weights` is bound; gone after the module."""
    made: list[SimPlace] = []

    def make() -> SimPlace:
        place = SimPlace(sim, f"t-{uuid.uuid4().hex[:8]}")
        made.append(place)
        place.create()
        sim.kubectl("create", "-f", "-", input=json.dumps(weights(place.namespace)))
        # a pod that comes before is told as ClaimNotBound: writes that a start does not cost elsewhere
        place.kubectl("wait", "pvc/weights", "--for=jsonpath={.status.phase}=Bound", "--timeout=30s")
        return place

    yield make
    for place in made:
        place.empty()
        sim.kubectl("delete", "persistentvolume", place.namespace, "--wait=false")


@pytest.fixture
def place(open_place: Callable[[], SimPlace], operator: Operator, eventually) -> SimPlace:
    """One for a test of its own."""
    place = open_place()
    eventually.places.append((place.cluster, place.namespace))
    return place


def annotations(fault: str = "", seconds: str = WARMUP_SECONDS) -> dict[str, dict[str, str]]:
    """The spec.podTemplate of engines that start within `seconds` and have this fault."""
    return {"annotations": {ANNOTATIONS["fault"]: fault, ANNOTATIONS["seconds"]: seconds}}
