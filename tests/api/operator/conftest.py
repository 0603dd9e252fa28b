"""An operator for the whole folder, a namespace for each test, and short ways to say what a test says often."""

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from graphpod_operator.status.write_throttle import MOMENT_SECONDS
from stubs.proxy import Proxy
from testbed import Cluster
from testbed.binaries.foreign import Foreign
from tests.api.operator.door import Door
from tests.api.operator.pods import AdminPorts
from tests.api.operator.process import HASTY, USER, Operator, grant
from tests.audit import Audit
from tests.crd import drop_crd, serve_crd
from tests.eventually import Eventually
from tests.places import LABEL, Place


@pytest.fixture(scope="package")
def crd_cluster(api_cluster: Cluster) -> Cluster:
    """The API server with our CRD, served."""
    serve_crd(api_cluster)
    return api_cluster


@pytest.fixture(scope="package")
def admin_ports() -> Iterator[AdminPorts]:
    with AdminPorts().serving() as ports:
        yield ports


@pytest.fixture(scope="package")
def running_operator(
    crd_cluster: Cluster, admin_ports: AdminPorts, audit: Audit, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operator]:
    """One process for all tests of the folder. What it must do in none of them is looked for at the end."""
    grant(crd_cluster)
    # tests look at what services may ask for; the lists of what they may use have tests of their own
    operator = Operator(
        crd_cluster, admin_ports.url, tmp_path_factory.mktemp("operator") / "log", arguments=("--allowed={}",)
    )
    operator.start()
    yield operator
    assert operator.stop() == 0, operator.tail()
    assert "Traceback" not in operator.log.read_text(), operator.tail()
    assert audit.since().by(USER).hot(times=10, within=5.0) == {}


@pytest.fixture
def operator(running_operator: Operator, eventually) -> Operator:
    """The operator, idle; its log is evidence."""
    eventually.logs.append(running_operator.log)
    eventually(running_operator.idle)
    return running_operator


@pytest.fixture
def hasty(operator: Operator, tmp_path: Path, eventually: Eventually) -> Iterator[Operator]:
    """An operator that notices a CRD within a second; the CRDs are gone after the test."""
    looking = replace(operator, log=tmp_path / "log", process=None, before=HASTY)
    eventually.logs.append(looking.log)
    assert operator.stop() == 0
    try:
        looking.start()
        eventually(looking.idle)
        yield looking
        assert looking.stop() == 0
    finally:
        for foreign in Foreign:
            drop_crd(operator.cluster, foreign.crd)
        operator.start()
        eventually(operator.idle, timeout=60)
    assert "Traceback" not in looking.log.read_text()


@pytest.fixture
def proxy(running_operator: Operator) -> Iterator[Proxy]:
    """Before the API server, for operators of a test's own; the folder's works again afterwards."""
    running_operator.stop()
    with Proxy(running_operator.cluster.kubeconfig).serving() as proxy:
        yield proxy
    running_operator.start()
    Eventually()(running_operator.idle)


@pytest.fixture(scope="package")
def audit(crd_cluster: Cluster) -> Audit:
    """Who asked what of the API server."""
    return Audit(crd_cluster.audit_log)


@pytest.fixture
def place(crd_cluster: Cluster, make_place: Callable[..., Place]) -> Place:
    """A fresh namespace."""
    return make_place(crd_cluster)


@pytest.fixture(scope="package")
def drafts(crd_cluster: Cluster) -> Place:
    """A namespace for manifests that the server only checks."""
    crd_cluster.kubectl("create", "namespace", "drafts")
    return Place(crd_cluster, "drafts")


@pytest.fixture
def door(crd_cluster: Cluster, drafts: Place) -> Iterator[Door]:
    """The server's judgement of a spec. For one test: the server closes a connection that idles."""
    with Door(crd_cluster, drafts.namespace) as door:
        yield door


@pytest.fixture(scope="package")
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
        kinds = "deployment,controllerrevision,service,configmap,serviceaccount"
        markers.kubectl("label", kinds, "-l", f"{LABEL}={name}", "app.kubernetes.io/part-of=nobody", "--overwrite")
        foreign = f"{LABEL}={name},app.kubernetes.io/part-of=nobody"
        eventually(lambda: not markers.names(kinds, foreign))
        markers.remove(name)
        time.sleep(MOMENT_SECONDS)  # a status may be waiting, which no queue shows
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
