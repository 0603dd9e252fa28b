"""An operator for the whole folder, a namespace for each test, and short ways to say what a test says often."""

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace

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
    """One process for all tests of the folder, until one of them ends it: `operator` starts the next. What it must do
    in no test is looked for at the end."""
    grant(crd_cluster)
    # tests look at what services may ask for; the lists of what they may use have tests of their own
    operator = Operator(
        crd_cluster, admin_ports.url, tmp_path_factory.mktemp("operator") / "log", arguments=("--allowed={}",)
    )
    operator.start(whole=True)
    Eventually(logs=[operator.log])(operator.idle, timeout=60)  # one that is ended before it hears signals dies of them
    yield operator
    operator.pause()
    assert "Traceback" not in operator.log.read_text(), operator.tail()
    hot = audit.since().by(USER).hot(times=10, within=5.0)
    # each operator that a test starts takes the Lease and releases it, several within a second; the create of an Event
    # has no name in the log, so those of all services of a namespace count as one object
    of_many = ("leases", "events")
    assert {thing: writes for thing, writes in hot.items() if thing.resource not in of_many} == {}


@pytest.fixture(scope="package")
def hasty_operator(running_operator: Operator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """One that notices a CRD within a second, to run in place of the other. Nothing has started it yet."""
    log = tmp_path_factory.mktemp("hasty") / "log"
    log.touch()
    looking = replace(running_operator, log=log, process=None, before=HASTY)
    yield looking
    looking.pause()
    assert "Traceback" not in log.read_text(), looking.tail()


@pytest.fixture
def operator(running_operator: Operator, hasty_operator: Operator, eventually) -> Operator:
    """The operator, idle; its log is evidence."""
    eventually.logs.append(running_operator.log)
    hasty_operator.pause()
    running_operator.resume()
    eventually(running_operator.idle, timeout=60)
    return running_operator


@pytest.fixture
def hasty(running_operator: Operator, hasty_operator: Operator, eventually: Eventually) -> Iterator[Operator]:
    """An operator that notices a CRD within a second; the CRDs are gone after the test."""
    eventually.logs.append(hasty_operator.log)
    running_operator.pause()
    hasty_operator.resume()
    eventually(hasty_operator.idle, timeout=60)
    yield hasty_operator
    for foreign in Foreign:
        drop_crd(hasty_operator.cluster, foreign.crd)


@pytest.fixture
def proxy(running_operator: Operator, hasty_operator: Operator) -> Iterator[Proxy]:
    """Before the API server, for operators of a test's own. The folder's do not run."""
    running_operator.pause()
    hasty_operator.pause()
    with Proxy(running_operator.cluster.kubeconfig).serving() as proxy:
        yield proxy


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
        markers.relabel(kinds, f"{LABEL}={name}", {"app.kubernetes.io/part-of": "nobody"})
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
