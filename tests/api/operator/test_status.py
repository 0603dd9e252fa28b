"""From a pod that waits to a service that is Ready, or to the reason why it never will be."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from testbed.errors import TestbedError
from tests.api.operator.pods import AdminPorts, crashed, report, running, set_status, unscheduled
from tests.api.operator.process import USER, Operator
from tests.audit import Audit
from tests.places import Place

Manifest = dict[str, Any]


def the_pod(place: Place) -> Manifest:
    (pod,) = place.pods()
    return pod


@pytest.fixture
def ready(applied: Place, admin_ports: AdminPorts, eventually) -> Place:
    """A service `demo` that is Ready."""
    pod = the_pod(applied)
    admin_ports.tell(pod, report(pod))
    set_status(applied.cluster, pod, running(ready=True))
    eventually(applied.reached("Ready", "True", "Ready"))
    return applied


def test_capture_is_followed_until_the_service_is_ready(
    applied: Place, admin_ports: AdminPorts, audit: Audit, eventually, settled: Callable[[], None]
) -> None:
    mark = audit.mark()
    pod = the_pod(applied)
    admin_ports.tell(pod, report(pod, "Capturing", captured=0.5))
    set_status(applied.cluster, pod, running(ready=False))
    eventually(applied.reached("GraphsCaptured", "False", "Capturing"))
    assert applied.condition("ModelAvailable")[:2] == ("True", "Loaded")
    assert applied.condition("Ready")[:2] == ("False", "Capturing")
    assert applied.status()["graph"]["captured"] == "13/26"

    admin_ports.tell(pod, report(pod))
    set_status(applied.cluster, pod, running(ready=True))
    eventually(applied.reached("Ready", "True", "Ready"))
    assert applied.condition("Reconciling") == ("", "", "")
    graph = applied.status()["graph"]
    assert graph["captured"] == "26/26"
    assert graph["backend"] == "Recorder"
    assert {phase: graph[phase]["effective"] for phase in ("prefill", "decode")} == {
        "prefill": "Breakable",
        "decode": "Full",
    }
    settled()
    reads = admin_ports.reads_of(pod)
    assert len(audit.since(mark).by(USER).of(applied.namespace).writes()) <= 6
    settled()
    assert admin_ports.reads_of(pod) == reads, "a terminal reading is not asked for again"


def test_kubectl_get_shows_what_runs_and_that_it_is_the_recorder(ready: Place) -> None:
    head, row = ready.kubectl("get", "gisvc").splitlines()
    assert head.split() == ["NAME", "READY", "STATUS", "PREFILL", "DECODE", "CAPTURED", "REPLICAS", "AGE"]
    assert row.split()[:3] == ["demo", "True", "Ready"]
    assert "Breakable (recorder)" in row
    assert "Full (recorder)" in row
    assert "26/26" in row


def test_a_start_is_told_by_one_event_for_each_stage(ready: Place, eventually) -> None:
    def events() -> list[Manifest]:
        items = json.loads(ready.kubectl("get", "events", "-o", "json"))["items"]
        return [item for item in items if item["involvedObject"]["kind"] == "InferenceService"]

    eventually(lambda: "Ready" in {event["reason"] for event in events()})
    told = {event["reason"]: event for event in events()}
    assert sorted(told) == ["Planned", "Ready"], "its pod has no node"
    assert len(told) == len(events())
    assert {event["type"] for event in told.values()} == {"Normal"}
    assert told["Planned"]["message"].endswith(" is planned: prefill Breakable, decode Full")
    assert " serves on proved graphs: 26/26 captured in " in told["Ready"]["message"]


def test_a_ready_service_survives_a_restart_of_the_operator_without_a_write(
    ready: Place, audit: Audit, operator: Operator, eventually, settled: Callable[[], None]
) -> None:
    settled()
    assert operator.stop() == 0
    mark = audit.mark()
    operator.start()
    eventually(operator.idle)
    settled()
    assert audit.since(mark).by(USER).of(ready.namespace).writes() == ()


def advise(place: Place, advice: Manifest) -> None:
    """A predecessor's advice on ladders is in the status."""
    patch = json.dumps({"status": {"graph": {"advice": advice}}})
    place.kubectl("patch", "gisvc", "demo", "--subresource=status", "--type=merge", "-p", patch)


def test_the_server_keeps_an_advice_and_a_restarted_operator_goes_on_from_it(
    ready: Place, audit: Audit, operator: Operator, eventually, settled: Callable[[], None]
) -> None:
    settled()
    advice = {"message": "decode pads 25%, with the sizes here 0%", "decode": [1, 3, 5, 8]}
    advise(ready, advice)
    assert operator.stop() == 0
    mark = audit.mark()
    operator.start()
    eventually(operator.idle)
    settled()
    assert ready.status()["graph"]["advice"] == advice
    assert audit.since(mark).by(USER).of(ready.namespace).writes() == ()


@pytest.mark.parametrize("sizes", [[0], [1 << 21], list(range(1, 130)), ["4"]], ids=["small", "large", "long", "text"])
def test_the_server_refuses_an_advice_that_no_operator_writes(ready: Place, sizes: list[Any]) -> None:
    with pytest.raises(TestbedError, match="decode"):
        advise(ready, {"message": "m", "decode": sizes})


def test_a_reading_of_another_pod_or_configuration_never_counts(
    applied: Place, admin_ports: AdminPorts, eventually, settled: Callable[[], None]
) -> None:
    pod = the_pod(applied)
    admin_ports.tell(pod, report(pod, podUID="someone-else"))
    set_status(applied.cluster, pod, running(ready=True))
    message = eventually(applied.reached("GraphsCaptured", "Unknown", "EngineMisreports"))
    assert "someone-else" in message
    assert "effective" not in applied.status()["graph"]["prefill"]
    admin_ports.tell(pod, report(pod, configHash="0123456789"))
    settled()
    assert applied.condition("GraphsCaptured")[:2] == ("Unknown", "EngineMisreports")
    assert applied.condition("Ready")[0] != "True"
    admin_ports.tell(pod, report(pod))
    eventually(applied.reached("Ready", "True", "Ready"))


def test_an_admin_port_that_answers_with_an_error_is_unknown_and_names_the_pods_log(applied: Place, eventually) -> None:
    pod = the_pod(applied)
    set_status(applied.cluster, pod, running(ready=True))
    message = eventually(applied.reached("GraphsCaptured", "Unknown", "EngineUnreachable"))
    assert f"answered 404; for the cause: kubectl -n {applied.namespace} logs {pod['metadata']['name']}" in message
    eventually(applied.reached("Ready", "Unknown", "EngineUnreachable"))  # False until the Deployment counts the pod


def test_a_restarted_container_has_to_prove_its_graphs_again(ready: Place, admin_ports: AdminPorts, eventually) -> None:
    pod = the_pod(ready)
    admin_ports.tell(pod, report(pod, "Capturing", captured=0.0))
    set_status(ready.cluster, pod, running(ready=False, container="containerd://2", restarts=1))
    eventually(ready.reached("GraphsCaptured", "False", "Capturing"))
    assert ready.condition("Ready")[0] == "False"


def test_a_degraded_phase_is_ready_and_says_so(applied: Place, admin_ports: AdminPorts, eventually) -> None:
    pod = the_pod(applied)
    told = report(pod)
    told["graph"]["decode"] |= {"effective": "Disabled", "sizes": {"planned": 4, "captured": 0, "failed": 1}}
    told["decisions"] = [
        {
            "rule": "CaptureFailed",
            "phase": "decode",
            "stage": "Engine",
            "outcome": "Degraded",
            "because": "capture of size 2 failed",
            "hint": "see the engine's log",
        }
    ]
    admin_ports.tell(pod, told)
    set_status(applied.cluster, pod, running(ready=True))
    message = eventually(applied.reached("GraphsCaptured", "True", "Degraded"))
    assert "decode runs Disabled instead of Full" in message
    eventually(applied.reached("Ready", "True", "Degraded"))
    graph = applied.status()["graph"]
    assert graph["captured"] == "22/26"
    assert graph["decode"]["sizes"] == {"planned": 4, "captured": 0, "failed": 1}
    assert "CaptureFailed" in {decision["rule"] for decision in graph["decisions"]}


MISSING = '0/1 nodes are available: persistentvolumeclaim "weights" not found. preemption: 0/1 nodes are available'


@pytest.mark.parametrize(
    ("status", "condition", "reason", "words"),
    [
        (unscheduled(MISSING), "ModelAvailable", "ClaimNotFound", "create the PersistentVolumeClaim"),
        (
            crashed(11, "ModelInvalid: /model/model holds no *.safetensors\nTraceback …"),
            "ModelAvailable",
            "ModelInvalid",
            "pvc://weights/model holds no *.safetensors; correct the folder in spec.model.uri",
        ),
        (
            crashed(12, "CaptureFailed: decode size 2: injected"),
            "GraphsCaptured",
            "CaptureFailed",
            "decode size 2: injected; set spec.graph.onCaptureFailure: Degrade",
        ),
        (crashed(13, "CaptureOutOfMemory: prefill size 256"), "GraphsCaptured", "CaptureOutOfMemory", "graph.sizes"),
        (crashed(14, "SelfCheckFailed: decode size 4"), "GraphsCaptured", "SelfCheckFailed", "report the failure"),
        (crashed(137, "", reason="OOMKilled"), "WorkloadAvailable", "OutOfMemory", "spec.resources.limits.memory"),
        (crashed(1, "boom"), "WorkloadAvailable", "CrashLoop", "boom; see kubectl -n "),
    ],
    ids=["claim", "model", "capture", "memory", "selfcheck", "oom", "crash"],
)
@pytest.mark.usefixtures("operator")
def test_a_failure_is_told_by_condition_reason_and_next_step(
    place: Place, eventually, status: Manifest, condition: str, reason: str, words: str
) -> None:
    place.apply(graph={"onCaptureFailure": "Fail"})
    eventually(lambda: len(place.pods()) == 1)
    set_status(place.cluster, the_pod(place), status)
    message = eventually(place.reached(condition, "False", reason))
    assert words in message
    assert len(message) <= 256
    assert place.condition("Ready")[:2] == ("False", reason)
    assert place.status()["lastFailure"]["reason"] == reason


@pytest.mark.parametrize(
    ("kind", "rule", "reason"),
    [
        ("ResourceQuota", {"hard": {"pods": "0"}}, "QuotaExceeded"),
        ("LimitRange", {"limits": [{"type": "Container", "max": {"cpu": "100m"}}]}, "LimitRangeExceeded"),
    ],
)
@pytest.mark.usefixtures("operator")
def test_a_namespace_that_admits_no_pods_is_told_in_the_servers_words(
    place: Place, eventually, kind: str, rule: Manifest, reason: str
) -> None:
    limit = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "team"}, "spec": rule}
    place.kubectl("create", "-f", "-", input=json.dumps(limit))
    if kind == "ResourceQuota":
        eventually(lambda: place.get("resourcequota", "team").get("status", {}).get("hard"))
    place.apply(resources={"limits": {"cpu": "2"}})
    message = eventually(place.reached("WorkloadAvailable", "False", reason))
    assert f"kubectl -n {place.namespace} describe {kind.lower()}" in message
    assert 'pods "' not in message, "the name of a pod that never was, another one at each try"
    failure = place.status()["lastFailure"]
    assert failure["reason"] == reason
    assert "pod" not in failure


def test_an_evicted_pod_is_told_and_its_successor_makes_the_service_ready(
    ready: Place, admin_ports: AdminPorts, eventually
) -> None:
    evicted = the_pod(ready)
    why = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
    set_status(ready.cluster, evicted, running(ready=False) | why)
    words = f"pod {evicted['metadata']['name']} failed permanently: Evicted: The node was low"
    # pods and Deployments are watched apart: the reason may come before the words
    eventually(lambda: words in ready.reached("Ready", "False", "Starting")())
    (successor,) = eventually(
        lambda: [pod for pod in ready.pods() if pod["metadata"]["uid"] != evicted["metadata"]["uid"]]
    )
    admin_ports.tell(successor, report(successor))
    set_status(ready.cluster, successor, running(ready=True))
    eventually(ready.reached("Ready", "True", "Ready"))
    assert "lastFailure" not in ready.status()


def test_a_suspended_service_runs_no_pod_and_comes_back(applied: Place, eventually) -> None:
    applied.apply(suspend=True)
    eventually(applied.reached("Ready", "False", "Suspended"))
    eventually(lambda: applied.pods() == [])
    applied.apply(suspend=False)
    eventually(lambda: len(applied.pods()) == 1)
