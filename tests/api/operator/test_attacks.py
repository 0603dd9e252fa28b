"""What a tenant or a careless administrator does to a running operator: it lives, others are served, status says so."""

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from graphpod_operator.api.names import CAPTURE_FAILURES_ANNOTATION
from graphpod_operator.handlers.settings import NO_FINALIZER
from testbed import Cluster
from testbed.errors import TestbedError
from tests.api.operator.explained import explained
from tests.api.operator.pods import AdminPorts, report, running, set_status
from tests.api.operator.process import USER, Operator
from tests.api.operator.test_bounds import DEEP, FIELDS, create, goes_on, nested, refused, written
from tests.audit import Audit
from tests.crd import drop_crd, serve_crd
from tests.places import Place, service
from tests.scribbles import put

INFINITE = float("inf")
LIES: dict[str, tuple[tuple[str, ...], Any, str]] = {
    "policy": (("graph", "decode", "effective"), "Auto", "graph.decode.effective is Auto"),
    "huge": (("graph", "prefill", "sizes", "planned"), 10**400, "graph.prefill.sizes.planned: "),
    "nan": (("graph", "prefill", "captureSeconds"), float("nan"), "graph.prefill.captureSeconds: "),
    "infinite": (("graph", "decode", "captureSeconds"), INFINITE, "graph.decode.captureSeconds: "),
    "long": (("configHash",), "x" * 60_000, "configHash: "),
    "nothing": ((), None, "without a warm-up report"),
}
"""A place in a report, what stands there, and what status says of it."""


def pod_of(place: Place, name: str, eventually: Any) -> dict[str, Any]:
    """The one pod of a service."""
    found: dict[str, Any] = eventually(lambda: len(pods := place.pods(name)) == 1 and pods[0])
    return found


def test_whatever_an_engine_reports_its_service_is_not_ready_and_status_names_the_field(
    operator: Operator, place: Place, make_place, crd_cluster, admin_ports: AdminPorts, eventually
) -> None:
    other: Place = make_place(crd_cluster)
    for name in LIES:
        place.apply(name)
    for name, (at, value, _) in LIES.items():
        pod = pod_of(place, name, eventually)
        whole = report(pod, limits={"maxModelLen": 2048, "maxBatch": 8})
        admin_ports.tell(pod, put(whole, at, value) or {"not": "a report"})
        set_status(place.cluster, pod, running(ready=True))
    other.apply()
    honest = pod_of(other, "demo", eventually)
    admin_ports.tell(honest, report(honest))
    set_status(other.cluster, honest, running(ready=True))
    eventually(other.reached("Ready", "True", "Ready"))
    for name, (_, _, words) in LIES.items():
        message = eventually(place.reached("GraphsCaptured", "Unknown", "EngineMisreports", name), timeout=60)
        assert words in message
        assert place.condition("Ready", name)[0] != "True"


@pytest.fixture
def node(crd_cluster: Cluster) -> Iterator[str]:
    """A node that pods can be bound to; nothing runs on it."""
    name = f"node-{uuid.uuid4().hex[:8]}"
    manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    crd_cluster.kubectl("create", "-f", "-", input=json.dumps(manifest))
    yield name
    crd_cluster.kubectl("delete", "node", name)


def test_a_start_of_many_times_its_estimate_that_makes_progress_is_not_stalled(
    applied: Place, node: str, admin_ports: AdminPorts, eventually, settled: Callable[[], None]
) -> None:
    """Its Deployment's deadline has passed long ago."""
    pod = pod_of(applied, "demo", eventually)
    name = pod["metadata"]["name"]
    target = {"kind": "Node", "name": node}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    path = f"/api/v1/namespaces/{applied.namespace}/pods/{name}/binding"
    applied.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(binding))
    admin_ports.tell(pod, report(pod, "Capturing", captured=0.5))
    set_status(applied.cluster, pod, running(ready=False))
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "late"}
    patch = json.dumps({"status": {"conditions": [late]}})
    applied.kubectl("patch", "deployment", "demo", "--subresource=status", "--type=merge", "-p", patch)
    eventually(applied.reached("GraphsCaptured", "False", "Capturing"))
    settled()
    assert applied.condition("Ready")[:2] == ("False", "Capturing")
    assert applied.condition("Stalled") == ("", "", "")

    admin_ports.reports.clear()
    set_status(applied.cluster, pod, running(ready=False, container="containerd://2", restarts=1))
    eventually(applied.reached("Stalled", "True", "RolloutStuck"), timeout=60)

    admin_ports.tell(pod, report(pod))
    set_status(applied.cluster, pod, running(ready=True, container="containerd://2", restarts=1))
    eventually(applied.reached("Ready", "True", "Ready"))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"steps": 1}'], ids=["deep", "another form"])
def test_a_memory_of_deaths_that_a_user_scribbled_on_holds_up_nothing(applied: Place, eventually, text: str) -> None:
    patch = json.dumps({"metadata": {"annotations": {CAPTURE_FAILURES_ANNOTATION: text}}})
    applied.kubectl("patch", "deployment", "demo", "--type=merge", "-p", patch)
    applied.apply(replicas=2)
    eventually(lambda: len(applied.pods()) == 2)
    eventually(applied.reached("WorkloadAvailable", "False", "Starting"))


def test_a_spec_whose_objects_would_be_too_large_is_refused_before_any_is_made(
    operator: Operator, place: Place, audit: Audit, eventually, settled: Callable[[], None]
) -> None:
    """Quotation marks: text within text within text."""
    quoted = [{"name": f"V{number}", "value": '"' * 4000} for number in range(58)]
    create(place, json.dumps(service(podTemplate={"env": quoted})))
    said = "spec.podTemplate.env: the ControllerRevision made from"
    assert eventually(refused(place, "demo")).startswith(said)
    done = explained(place, "demo")
    assert done.returncode == 4, done.stderr
    assert done.stdout.startswith(f"cannot start: SpecTooLarge: {said}")
    settled()
    writes = audit.since().by(USER).of(place.namespace).writes()
    assert {one.kind for one in writes} <= {"inferenceservices/status", "events"}


def test_an_object_that_is_not_read_is_explained_by_its_bound(operator: Operator, place: Place) -> None:
    create(place, written(service("deep", **FIELDS["volume"](None)), nested(DEEP)))
    done = explained(place, "deep")
    assert done.returncode == 2
    assert "the object is nested more than 128 levels deep; shorten or remove that field" in done.stderr


def test_the_finalizer_that_the_framework_would_remove_is_one_that_no_object_can_have(drafts: Place) -> None:
    bad = service(metadata={"finalizers": [NO_FINALIZER]})
    with pytest.raises(TestbedError, match="name part must consist of"):
        drafts.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(bad))


def test_an_object_that_a_finalizer_keeps_is_named_with_it_and_the_service_heals(applied: Place, eventually) -> None:
    def finalizers(value: Any) -> None:
        patch = json.dumps({"metadata": {"finalizers": value}})
        applied.kubectl("patch", "service", "demo", "--type=merge", "-p", patch)

    finalizers(["example.com/never"])
    applied.kubectl("delete", "service", "demo", "--wait=false")
    message = eventually(applied.reached("Accepted", "Unknown", "PreviousDeleting"))
    assert f"Service {applied.namespace}/demo still exists" in message
    assert "waits for its finalizers: example.com/never" in message
    finalizers(None)
    eventually(applied.reached("Accepted", "True", "Accepted"), timeout=60)


def test_services_are_seen_again_after_somebody_deleted_the_crd_and_installed_it_again(
    operator: Operator, place: Place, eventually
) -> None:
    place.apply("before")
    eventually(place.reached("WorkloadAvailable", "False", "Starting", "before"))
    failures = operator.metric("graphpod_operator_watch_failures_total")
    drop_crd(place.cluster)
    eventually(lambda: operator.metric("graphpod_operator_watch_failures_total") > failures, timeout=60)
    serve_crd(place.cluster)
    goes_on(place, "after", eventually)
