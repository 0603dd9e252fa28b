"""The conditions that stand beside Ready: Scheduled, Available, Degraded."""

from typing import Any

import pytest

from graphpod_operator.observe.observed_state import Observed
from graphpod_operator.observe.warmup_report import NoReading, Reading
from graphpod_operator.telemetry.label_values import Missing
from tests.unit.operator.objects import pod
from tests.unit.operator.told import DIED, HASH, READY, STARTING, UID, reading, seen, the, words


def placed(name: str = "demo-abc-1", **changes: Any) -> dict[str, Any]:
    """A pod of the planned configuration, on a node."""
    return {**pod(name, config_hash=HASH, **changes), "spec": {"nodeName": "n"}}


def gated(*gates: str) -> dict[str, Any]:
    """A pod that the scheduler may not look at."""
    blocked = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "blocked"}
    waits = pod(config_hash=HASH, running=False, status={"conditions": [blocked]})
    return {**waits, "spec": {"schedulingGates": [{"name": gate} for gate in gates]}}


NO_ROOM = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes: 3 Insufficient cpu."}]}


NO_CLAIM = {
    "conditions": [{"type": "PodScheduled", "status": "False", "message": 'persistentvolumeclaim "w" not found'}]
}


@pytest.mark.parametrize(
    ("pods", "spec", "said"),
    [
        ([], {}, ("Unknown", "PodsPending")),
        ([pod(config_hash=HASH)], {}, ("Unknown", "PodsPending")),
        ([placed()], {}, ("True", "Scheduled")),
        ([placed()], {"replicas": 2}, ("Unknown", "PodsPending")),
        ([placed(), placed("demo-abc-2")], {"replicas": 2}, ("True", "Scheduled")),
        ([pod(config_hash=HASH, running=False, status=NO_ROOM)], {}, ("False", "Unschedulable")),
        ([pod(config_hash=HASH, running=False, status=NO_CLAIM)], {}, ("False", "ClaimNotFound")),
        ([gated("kueue.x-k8s.io/admission")], {}, ("False", "QueuedByKueue")),
        ([gated("example.com/wait")], {}, ("False", "SchedulingGated")),
        ([placed("demo-old-1") | {"metadata": pod("demo-old-1")["metadata"]}], {}, ("Unknown", "PodsPending")),
        ([], {"suspend": True}, ("False", "Suspended")),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else "",
)
def test_scheduled_says_whether_every_pod_of_the_spec_has_a_node(
    pods: list[dict[str, Any]], spec: dict[str, Any], said: tuple[str, str]
) -> None:
    told = words(the(seen(pods), **spec))
    assert told["Scheduled"] == said
    if said[0] == "False":
        assert "Stalled" not in told or said[1] == "ClaimNotFound", "room may come"


def test_a_pod_that_waits_for_a_node_is_told_whatever_else_fails() -> None:
    crashed = pod("demo-abc-2", config_hash=HASH, running=False, engine=DIED)
    told = words(the(seen([pod(config_hash=HASH, running=False, status=NO_ROOM), crashed]), replicas=2))
    assert told["Scheduled"] == ("False", "Unschedulable")
    assert told["WorkloadAvailable"] == ("False", "EngineDied")


OLD = pod("demo-old-1", config_hash="old", ready=True)


@pytest.mark.parametrize(
    ("observed", "said"),
    [
        (seen(), ("False", "NothingServes")),
        (READY, ("True", "Serving")),
        (seen([OLD], {"uid-demo-old-1": reading("demo-old-1", config_hash="old")}, STARTING), ("True", "Serving")),
        (seen([OLD], {}, STARTING), ("Unknown", "Unproved")),
        (seen([OLD], {"uid-demo-old-1": NoReading(Missing.Unreachable, "x")}, STARTING), ("Unknown", "Unproved")),
        (seen([pod(config_hash=HASH)], {UID: reading()}, STARTING), ("False", "NothingServes")),
    ],
    ids=["nothing", "ready", "an earlier generation", "silent", "unreachable", "not ready"],
)
def test_available_says_whether_a_proved_pod_of_any_generation_serves(
    observed: Observed, said: tuple[str, str]
) -> None:
    assert words(the(observed))["Available"] == said


def test_a_refused_spec_leaves_available_to_the_pods_that_serve() -> None:
    told = words(the(READY, engine={"deterministic": True}))
    assert told["Available"] == ("True", "Serving")
    assert told["Degraded"] == told["Scheduled"] == ("Unknown", "NotAccepted")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (reading(), ("False", "AsPlanned")),
        (reading(decode="Disabled"), ("True", "Degraded")),
        (reading(decode="Disabled", state="Capturing"), ("False", "AsPlanned")),
    ],
    ids=["as planned", "weaker", "not at its end"],
)
def test_degraded_says_whether_a_pod_runs_less_than_planned(answer: Reading, said: tuple[str, str]) -> None:
    for ready in (True, False):
        told = words(the(seen([pod(config_hash=HASH, ready=ready)], {UID: answer}, STARTING)))
        assert told["Degraded"] == said
