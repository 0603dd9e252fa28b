"""The cluster as it was an hour ago: etcd restored from a backup, under an operator that knows what was since."""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import Cluster
from testbed.process import send
from tests.api.operator.pods import AdminPorts
from tests.api.operator.process import USER, Operator, grant
from tests.audit import Audit
from tests.clusters import own_cluster
from tests.crd import serve_crd
from tests.eventually import Eventually
from tests.places import Place

SOON = "from graphpod_operator.watch import relist as resync; resync.EVERY_SECONDS = resync.DOUBT_SECONDS = 5.0"
"""Of `before`: what takes a quarter of an hour at most takes seconds."""
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager")
CHILDREN = "deployments,services,serviceaccounts,configmaps,controllerrevisions"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """One of its own: its history goes back."""
    with own_cluster("test-restored", "api") as cluster:
        serve_crd(cluster)
        grant(cluster)
        yield cluster


def back_up(cluster: Cluster, to: Path) -> None:
    """What etcd keeps at this moment."""
    etcd = cluster.process("etcd")
    send(etcd, signal.SIGSTOP)
    try:
        shutil.copytree(cluster.folder / "etcd", to)
    finally:
        send(etcd, signal.SIGCONT)


def restore(cluster: Cluster, backup: Path) -> None:
    """As operators of clusters do it: with the whole control plane down."""

    def put_back() -> None:
        shutil.rmtree(cluster.folder / "etcd")
        shutil.copytree(backup, cluster.folder / "etcd")

    cluster.restart(*CONTROL_PLANE, meanwhile=put_back)


def generation(place: Place) -> int:
    found: int = place.get("deployment", "demo")["metadata"]["generation"]
    return found


def test_etcd_restored_under_a_running_operator_is_told_and_a_restart_makes_all_as_the_backup_says(
    cluster: Cluster, admin_ports: AdminPorts, tmp_path: Path, eventually: Eventually
) -> None:
    place = Place(cluster, "restored")
    place.create()
    operator = Operator(cluster, admin_ports.url, tmp_path / "log", before=SOON)
    eventually.places.append((cluster, place.namespace))
    eventually.logs.append(operator.log)
    operator.start()
    try:
        eventually(operator.idle)
        place.apply()
        eventually(place.reached("WorkloadAvailable", "False", "Starting"))
        (pod,) = eventually(place.pods)
        before = generation(place)
        eventually(operator.idle)
        back_up(cluster, tmp_path / "etcd")

        place.apply(replicas=2)
        place.apply("later")
        eventually(lambda: len(place.pods()) == 2)
        eventually(place.reached("WorkloadAvailable", "False", "Starting", "later"))
        restore(cluster, tmp_path / "etcd")

        mark = Audit(cluster.audit_log).mark()

        def sick() -> str | None:
            status, said = operator.ask("/healthz")
            return said if status == 503 else None

        told = eventually(sick, timeout=90)
        assert told.startswith("the watch cache is stale: "), "versions or deletions: which is seen first varies"
        assert operator.stop() == 0  # as the kubelet does it
        operator.start()
        eventually(operator.idle)
        assert operator.ask("/healthz")[0] == 200
        assert [one["metadata"]["uid"] for one in eventually(place.pods)] == [pod["metadata"]["uid"]]
        assert generation(place) == before
        assert all("later" not in name for name in place.names(f"gisvc,{CHILDREN}"))
        # what is applied to what is so already changes nothing, as the generation says
        writes = Audit(cluster.audit_log).since(mark).by(USER).writes()
        assert {one.resource for one in writes if one.code == 201 or one.verb == "delete"} <= {"events"}
        place.apply(replicas=3)
        eventually(lambda: len(place.pods()) == 3)
    finally:
        operator.kill()
    assert "Traceback" not in operator.log.read_text()
