"""An operator of one namespace: rights there and nowhere else are enough."""

from pathlib import Path

from testbed import Cluster
from tests.api.operator.pods import AdminPorts
from tests.api.operator.process import Operator, grant
from tests.audit import Audit
from tests.eventually import Eventually
from tests.places import Place

USER = "user1"


def test_an_operator_of_one_namespace_needs_no_right_outside_it(
    operator: Operator, place: Place, admin_ports: AdminPorts, audit: Audit, tmp_path: Path, eventually: Eventually
) -> None:
    grant(place.cluster, USER, place.namespace)
    small = Operator(
        place.cluster, admin_ports.url, tmp_path / "log", USER, (place.namespace,), lease_namespace=place.namespace
    )
    eventually.logs.append(small.log)
    operator.pause()  # else it would do the work
    try:
        small.start()
        place.apply()
        eventually(place.reached("WorkloadAvailable", "False", "Starting"))
        place.scale(3)
        eventually(lambda: place.get("deployment", "demo")["spec"]["replicas"] == 1)
    finally:
        small.pause()
    assert "Traceback" not in small.log.read_text()
    asked = audit.since().by(USER)
    assert asked.forbidden() == ()
    assert {right.namespace for right in asked.rights()} == {place.namespace}


def test_an_operator_told_to_stop_while_it_starts_ends_well(
    crd_cluster: Cluster, admin_ports: AdminPorts, tmp_path: Path, eventually: Eventually
) -> None:
    waiting = Operator(crd_cluster, admin_ports.url, tmp_path / "log", "user2")  # has no right to list anything
    waiting.start()
    eventually(lambda: waiting.ask("/readyz")[0] == 503)
    assert waiting.stop() == 0
    assert "Traceback" not in waiting.log.read_text()
