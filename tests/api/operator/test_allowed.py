"""Contract 35 on a real API server: an operator with lists takes over from one without."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed import Cluster
from tests.api.operator.process import USER, Operator
from tests.audit import Audit
from tests.eventually import Eventually
from tests.places import Place, PodSecurity

HOST = {"volumes": [{"name": "logs", "hostPath": {"path": "/var/log"}}]}
TOLD = "hostPath is not in allowed.volumeTypes: configMap"


@pytest.fixture
def place(crd_cluster: Cluster, make_place) -> Place:
    made: Place = make_place(crd_cluster, PodSecurity.Privileged)  # `restricted` knows no hostPath
    return made


@pytest.fixture
def served(operator: Operator, place: Place, eventually: Eventually) -> Place:
    """A service with a hostPath, accepted by an operator that allows everything."""
    place.apply(podTemplate=HOST)
    eventually(place.reached("Accepted", "True", "Accepted"))
    eventually(lambda: len(place.pods()) == 1)
    eventually(lambda: place.status().get("replicas") == 1)
    return place


@contextmanager
def successor(operator: Operator, folder: Path, eventually: Eventually) -> Iterator[Operator]:
    """For a while, an operator with the lists that one has by default."""
    strict = replace(operator, log=folder / "log", process=None, arguments=())
    eventually.logs.append(strict.log)
    assert operator.stop() == 0
    try:
        strict.start()
        eventually(strict.idle)
        yield strict
    finally:
        strict.pause()


def runs(place: Place) -> tuple[Any, Any]:
    return place.get("deployment", "demo")["spec"], [pod["metadata"]["uid"] for pod in place.pods()]


def test_a_running_service_that_breaks_a_list_is_refused_and_runs_on(
    served: Place, operator: Operator, audit: Audit, tmp_path: Path, eventually: Eventually
) -> None:
    before, mark = runs(served), audit.mark()
    with successor(operator, tmp_path, eventually) as strict:
        eventually(served.reached("Accepted", "False", "NotAllowed"))
        assert TOLD in served.condition("Accepted")[2]
        eventually(strict.idle)
        written = audit.since(mark).by(USER).of(served.namespace).writes()
        assert {write.resource for write in written} <= {"inferenceservices", "events"}
        assert runs(served) == before

        served.apply("other", podTemplate=HOST)
        eventually(served.reached("Accepted", "False", "NotAllowed", "other"))
        assert served.names("deployments") == ["deployment.apps/demo"]

        served.apply(podTemplate={"volumes": [{"name": "logs", "emptyDir": {}}]})
        eventually(served.reached("Accepted", "True", "Accepted"))
        eventually(lambda: "emptyDir" in str(runs(served)[0]["template"]["spec"]["volumes"][-1]))
