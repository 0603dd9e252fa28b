"""An operator for the whole folder, a namespace for each test, and short ways to say what a test says often."""

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from graphpod_operator import crd
from testbed import Cluster
from tests.api.operator.pods import AdminPorts
from tests.api.operator.process import Audit, Operator, grant

Manifest = dict[str, Any]
LABEL = "graphpod.dev/inferenceservice"
URI = "pvc://weights/model"


@pytest.fixture(scope="session")
def crd_cluster(api_cluster: Cluster) -> Cluster:
    """The API server with our CRD, served."""
    api_cluster.kubectl("apply", "--server-side", "-f", "-", input=crd.render())
    api_cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/inferenceservices.graphpod.dev")
    return api_cluster


@pytest.fixture(scope="session")
def admin_ports() -> Iterator[AdminPorts]:
    with AdminPorts().serving() as ports:
        yield ports


@pytest.fixture(scope="session")
def running_operator(
    crd_cluster: Cluster, admin_ports: AdminPorts, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operator]:
    grant(crd_cluster)
    operator = Operator(crd_cluster, admin_ports.url, tmp_path_factory.mktemp("operator") / "log")
    operator.start()
    yield operator
    assert operator.stop() == 0, operator.tail()
    assert "Traceback" not in operator.log.read_text(), operator.tail()


@pytest.fixture
def operator(running_operator: Operator, eventually) -> Operator:
    """The operator, idle; its log is evidence."""
    eventually.evidence.append(running_operator.tail)
    eventually(running_operator.idle)
    return running_operator


@pytest.fixture
def audit(crd_cluster: Cluster) -> Audit:
    return Audit(crd_cluster.audit_log)


@dataclass(frozen=True)
class Place:
    """One namespace of the API server, as a test's admin sees it."""

    cluster: Cluster
    namespace: str

    def kubectl(self, *args: str, **kwargs: Any) -> str:
        return self.cluster.kubectl("-n", self.namespace, *args, **kwargs)

    def apply(self, name: str = "demo", metadata: Manifest | None = None, **spec: Any) -> None:
        """Apply an InferenceService."""
        self.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(service(name, metadata, **spec)))

    def get(self, kind: str, name: str) -> Manifest:
        found: Manifest = json.loads(self.kubectl("get", kind, name, "-o", "json", "--show-managed-fields"))
        return found

    def names(self, kinds: str) -> list[str]:
        return self.kubectl("get", kinds, "-l", LABEL, "-o", "name").split()

    def pods(self, name: str = "demo") -> list[Manifest]:
        items = json.loads(self.kubectl("get", "pods", "-l", f"{LABEL}={name}", "-o", "json"))["items"]
        return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]

    def status(self, name: str = "demo") -> Manifest:
        return self.get("gisvc", name).get("status") or {}

    def condition(self, kind: str, name: str = "demo") -> tuple[str, str, str]:
        """(status, reason, message) of a condition, of the current generation only."""
        found = self.get("gisvc", name)
        for condition in (found.get("status") or {}).get("conditions", []):
            if condition["type"] == kind and condition["observedGeneration"] == found["metadata"]["generation"]:
                return condition["status"], condition["reason"], condition["message"]
        return "", "", ""

    def reached(self, kind: str, status: str, reason: str, name: str = "demo") -> Callable[[], str]:
        """A check for `eventually`: the message of a condition, once it has that status and reason."""

        def check() -> str:
            found = self.condition(kind, name)
            assert found[:2] == (status, reason), f"{kind} is {found}"
            return found[2]

        return check


def service(name: str = "demo", metadata: Manifest | None = None, **spec: Any) -> Manifest:
    """An InferenceService with the given spec beside its model."""
    return {
        "apiVersion": "graphpod.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"model": {"uri": URI}, **spec},
    }


@pytest.fixture
def place(crd_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Place]:
    """A fresh namespace."""
    namespace = f"t-{uuid.uuid4().hex[:8]}"
    crd_cluster.kubectl("create", "namespace", namespace)
    yield Place(crd_cluster, namespace)
    crd_cluster.kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture(scope="session")
def drafts(crd_cluster: Cluster) -> Place:
    """A namespace for manifests that the server only checks."""
    crd_cluster.kubectl("create", "namespace", "drafts")
    return Place(crd_cluster, "drafts")


@pytest.fixture(scope="session")
def markers(crd_cluster: Cluster) -> Place:
    """A namespace for marker services."""
    crd_cluster.kubectl("create", "namespace", "markers")
    return Place(crd_cluster, "markers")


@pytest.fixture
def settled(operator: Operator, markers: Place, eventually) -> Callable[[], None]:
    """Waits until the operator has seen and handled everything that was written before the call.

    A marker service, created after those writes, gets its status and is repaired only after the operator's watches
    of every kind have delivered what came before.
    """

    def settle() -> None:
        name = f"m-{uuid.uuid4().hex[:8]}"
        markers.apply(name, suspend=True)
        eventually(markers.reached("WorkloadAvailable", "False", "Suspended", name))
        kinds = "deployment,service,configmap,serviceaccount"
        markers.kubectl("label", kinds, "-l", f"{LABEL}={name}", "app.kubernetes.io/part-of=nobody", "--overwrite")
        foreign = f"{LABEL}={name},app.kubernetes.io/part-of=nobody"
        eventually(lambda: not markers.kubectl("get", kinds, "-l", foreign, "-o", "name"))
        markers.kubectl("delete", "gisvc", name)
        eventually(operator.idle)

    return settle


@pytest.fixture
def applied(operator: Operator, place: Place, eventually) -> Place:
    """A service `demo` whose children exist and whose pod waits. A detail of its status may still be held back."""
    place.apply()
    eventually(place.reached("WorkloadAvailable", "False", "Starting"))
    eventually(lambda: len(place.pods()) == 1)
    return place


@pytest.fixture
def quiet(applied: Place, eventually, settled: Callable[[], None]) -> Place:
    """The same once its status is written to the last detail, so that no write is due."""
    eventually(lambda: applied.status().get("replicas") == 1)
    settled()
    return applied
