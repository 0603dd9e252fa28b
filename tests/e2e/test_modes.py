"""The chart's life beside a service that answers: the operator as its pod, in one namespace and in the whole cluster.

The tests of this file are one story in its order. What an operator does and may do in each mode is told in full by
tests/api/chart; here its pod does it.
"""

import json
from collections.abc import Callable, Iterator

import pytest
import yaml

from demo.answer import address, ask
from demo.chart import CHART, OPERATOR, RELEASE, wait_operator
from demo.chart import NAMESPACE as SYSTEM
from demo.current import ownership
from demo.images import provide
from demo.local import Testbed
from demo.objects import read
from demo.service import EXAMPLE, NAME, NAMESPACE, SELECTOR, fill_claim
from testbed import Cluster
from testbed.binaries.golang import build
from testbed.reach import takes_connections
from tests.audit import Audit
from tests.crd import drop_crd
from tests.eventually import Eventually
from tests.places import Place

ACCOUNT = f"system:serviceaccount:{SYSTEM}:{OPERATOR}"
PART_OF = "app.kubernetes.io/part-of"  # a label the operator sets
START = 240.0  # s for an engine with a short ladder, on a busy machine


@pytest.fixture(scope="module")
def bare(node_cluster: Cluster) -> Iterator[Cluster]:
    """Without anything of graphpod but the weights in their claim; the same afterwards."""
    build(["helm3", "helm4"])
    images = provide(node_cluster, print)
    _remove(node_cluster)
    fill_claim(node_cluster, images["demo-weights"], print)
    yield node_cluster
    _remove(node_cluster)


def _remove(cluster: Cluster) -> None:
    Testbed(cluster).helm("uninstall", RELEASE, "--namespace", SYSTEM, "--wait", "--ignore-not-found")
    drop_crd(cluster)


def install(cluster: Cluster, helm: str, *settings: str) -> None:
    wanted = ("--namespace", SYSTEM, "--create-namespace", "--reset-values")
    values = (f"--set={setting}" for setting in settings)
    Testbed(cluster, helm).helm("upgrade", "--install", RELEASE, str(CHART), *wanted, *values)
    wait_operator(cluster)


def pods(cluster: Cluster) -> set[str]:
    """Uids of the service's pods that stay."""
    found = json.loads(cluster.kubectl("get", "pods", "-n", NAMESPACE, "-l", SELECTOR, "-o", "json"))["items"]
    return {pod["metadata"]["uid"] for pod in found if "deletionTimestamp" not in pod["metadata"]}


def ready(cluster: Cluster) -> Callable[[], bool]:
    def check() -> bool:
        found = Place(cluster, NAMESPACE).status(NAME).get("conditions", [])
        now = {one["type"]: (one["status"], one["reason"], one["message"]) for one in found}
        assert now.get("Ready", ("",))[0] == "True", now
        return True

    return check


@pytest.fixture(scope="module")
def served(bare: Cluster) -> Iterator[Cluster]:
    """Helm 3, one namespace, and a service in it. `served` is what every test of the story finds."""
    install(bare, "helm3", f"watchNamespaces={{{NAMESPACE}}}")
    service = yaml.safe_load(EXAMPLE.read_text())
    service["spec"]["graph"] = {"sizes": {"prefill": [16], "decode": [1]}}  # a start in seconds
    bare.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump(service))
    yield bare
    bare.kubectl("delete", "inferenceservice", NAME, "-n", NAMESPACE, "--wait", "--ignore-not-found", timeout=90)


@pytest.fixture
def elsewhere(served: Cluster, make_place: Callable[..., Place]) -> Place:
    """A suspended service in a namespace the chart did not name."""
    place = make_place(served)
    place.apply(suspend=True)
    return place


def test_in_one_namespace_it_serves_there_and_is_refused_nothing(
    served: Cluster, elsewhere: Place, eventually: Eventually
) -> None:
    eventually(ready(served), timeout=START)
    eventually(lambda: takes_connections(address(served)))
    assert "Paris" in ask(address(served))
    assert elsewhere.status() == {}
    asked = Audit(served.audit_log).since().by(ACCOUNT)
    assert asked.of(elsewhere.namespace) == ()
    assert {one.pod.rpartition("-")[0].rpartition("-")[0] for one in asked} == {OPERATOR}, "its pod, and nobody else"


def test_helm_4_takes_the_release_over_and_gives_it_the_whole_cluster(
    served: Cluster, elsewhere: Place, eventually: Eventually
) -> None:
    before = pods(served)
    mark = Audit(served.audit_log).mark()
    install(served, "helm4")
    eventually(elsewhere.reached("Ready", "False", "Suspended"), timeout=60)
    eventually(ready(served))
    assert pods(served) == before
    assert Audit(served.audit_log).since(mark).by(ACCOUNT).forbidden() == ()


def test_a_rollback_with_live_services_restarts_none(
    served: Cluster, make_place: Callable[..., Place], eventually: Eventually
) -> None:
    before = pods(served)
    Testbed(served).helm("rollback", RELEASE, "1", "--namespace", SYSTEM)
    wait_operator(served)
    place = make_place(served)
    place.apply(suspend=True)
    # What somebody changed at the service's own objects is put back, so by then it has seen the other one if it could.
    served.kubectl("label", "service", NAME, "-n", NAMESPACE, "--overwrite", f"{PART_OF}=nobody")
    eventually(lambda: read(served, "service", NAME, NAMESPACE)["metadata"]["labels"][PART_OF] != "nobody")
    eventually(ready(served))
    assert place.status() == {}
    assert pods(served) == before
    assert "Paris" in ask(address(served))


def test_after_uninstall_the_pod_goes_on_answering_and_a_new_release_finds_it(
    served: Cluster, eventually: Eventually
) -> None:
    before = pods(served)
    Testbed(served).helm("uninstall", RELEASE, "--namespace", SYSTEM, "--wait")
    assert read(served, "deployment", OPERATOR, SYSTEM) is None
    assert read(served, "crd", ownership.CRD), "kept"
    assert "Paris" in ask(address(served))
    install(served, "helm4")
    eventually(ready(served))
    assert pods(served) == before
    assert "Paris" in ask(address(served))
