"""Contract 16: what Argo CD, Flux and Helm make of a service, on objects as the operator writes them.

What they judge by is recorded in goldens/argocd.json; with UPDATE_GOLDENS=1 in the environment they are recorded anew.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from graphpod_operator.conditions.message import sentence
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.conditions.types import ROOTS, ConditionType
from graphpod_operator.kube.resources import Resource
from tests.argocd import health
from tests.unit.operator.objects import NAMESPACE, inference_service, pod, report
from tests.unit.operator.world import HASH, World

RECORDED = Path(__file__).with_name("goldens") / "argocd.json"
SERVICE = (Resource.InferenceService, NAMESPACE, "demo")
Manifest = dict[str, Any]

NO_ROOM = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes: 3 Insufficient cpu."}]}


def ended(code: int, message: str) -> Manifest:
    return {"state": {"terminated": {"exitCode": code, "reason": "Error", "message": message}}}


SITUATIONS: dict[str, tuple[Manifest, Manifest | None, Manifest | None, str, str]] = {
    # spec, pod, report, Argo CD's health, kstatus
    "starting": ({}, None, None, "Progressing", "InProgress"),
    "loading": ({}, {}, {"state": "Loading", "captured": (0, 0)}, "Progressing", "InProgress"),
    "capturing": ({}, {}, {"state": "Capturing", "captured": (5, 0)}, "Progressing", "InProgress"),
    "checking itself": ({}, {}, {"state": "SelfChecking"}, "Progressing", "InProgress"),
    "unschedulable": ({}, {"running": False, "status": NO_ROOM}, None, "Progressing", "InProgress"),
    "ready": ({}, {"ready": True}, {}, "Healthy", "Current"),
    "degraded": ({}, {"ready": True}, {"decode": "Disabled"}, "Healthy", "Current"),
    "suspended": ({"suspend": True}, None, None, "Suspended", "InProgress"),
    "not built": ({"engine": {"deterministic": True}}, None, None, "Degraded", "Failed"),
    "no model": ({}, {"running": False, "engine": ended(11, "ModelInvalid: no file")}, None, "Degraded", "Failed"),
    "no claim": (
        {},
        {
            "running": False,
            "status": {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "message": 'persistentvolumeclaim "w" not found'}
                ]
            },
        },
        None,
        "Degraded",
        "Failed",
    ),
    "capture fails": (
        {"graph": {"onCaptureFailure": "Fail"}},
        {"running": False, "engine": ended(12, "CaptureFailed: decode size 4")},
        None,
        "Degraded",
        "Failed",
    ),
    "capture fails, a weaker plan may follow": (
        {},
        {"running": False, "engine": ended(12, "CaptureFailed: decode size 4")},
        None,
        "Progressing",
        "InProgress",
    ),
}


async def record(spec: Manifest, made: Manifest | None, told: Manifest | None) -> Manifest:
    world = World()
    world.cluster.put(Resource.InferenceService, inference_service(**spec))
    await world.relist()
    await world.reconcile()
    if made is not None:
        marks = world.deployment["spec"]["template"]["metadata"]["annotations"]
        form = {"config_hash": marks["graphpod.dev/config-hash"], "template": marks["graphpod.dev/template"]}
        world.cluster.put(Resource.Pod, pod(**form, **made))
        ready = int(bool(made.get("ready")))
        deployment = world.deployment
        counts = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": ready, "availableReplicas": ready}
        deployment["status"] = {"observedGeneration": 10**6, **counts}
        world.cluster.put(Resource.Deployment, deployment)
    world.ports.report = report(config_hash=HASH, **told) if told is not None else None
    world.clock.now += 60
    await world.relist()
    await world.reconcile()
    found = world.cluster.objects[SERVICE]
    metadata = {name: found["metadata"][name] for name in ("name", "namespace", "generation")}
    judged = {name: found["status"][name] for name in ("observedGeneration", "phase", "conditions")}
    return {"apiVersion": found["apiVersion"], "kind": found["kind"], "metadata": metadata, "status": judged}


@pytest.fixture(scope="module")
def recorded() -> dict[str, Manifest]:
    found: dict[str, Manifest] = json.loads(RECORDED.read_text())
    return found


@pytest.mark.parametrize("name", SITUATIONS)
async def test_the_recorded_object_is_what_the_operator_writes(name: str) -> None:
    found = await record(*SITUATIONS[name][:3])
    if os.environ.get("UPDATE_GOLDENS"):
        known = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
        RECORDED.write_text(json.dumps(known | {name: found}, indent=1, sort_keys=True) + "\n")
    assert json.loads(RECORDED.read_text())[name]["status"] == json.loads(json.dumps(found["status"]))


@pytest.mark.parametrize("name", SITUATIONS)
def test_argo_cd_tells_its_health_and_why(name: str, recorded: dict[str, Manifest]) -> None:
    *_, expected, _ = SITUATIONS[name]
    status, message = health(recorded[name])
    assert status == expected
    conditions = [f"{row['reason']}: {row['message']}" for row in recorded[name]["status"]["conditions"]]
    assert message in conditions, "a condition's own words, with the next step"


@pytest.mark.parametrize(
    ("changed", "expected", "words"),
    [
        ({"status": None}, "Progressing", "has not reconciled it yet"),
        ({"status": {"observedGeneration": 1}}, "Progressing", "has not reconciled it yet"),
        ({"metadata": {"generation": 2}}, "Progressing", "has not reconciled this spec"),
        ({"metadata": {"generation": 1, "deletionTimestamp": "2026-01-01T00:00:00Z"}}, "Progressing", "being deleted"),
    ],
    ids=["no status", "no conditions", "an older spec", "deleted"],
)
def test_what_says_nothing_of_the_present_spec_is_progressing(
    changed: Manifest, expected: str, words: str, recorded: dict[str, Manifest]
) -> None:
    status, message = health({**recorded["ready"], **changed})
    assert (status, words in message) == (expected, True)


def kstatus(manifest: Manifest) -> str:
    """What Flux and Helm 4 make of it; source: `pkg/kstatus/status/generic.go` of sigs.k8s.io/cli-utils."""
    told = {row["type"]: row["status"] for row in manifest["status"]["conditions"]}
    if manifest["status"]["observedGeneration"] != manifest["metadata"]["generation"]:
        return "InProgress"
    if told.get("Reconciling") == "True":
        return "InProgress"
    if told.get("Stalled") == "True":
        return "Failed"
    return "Current" if told["Ready"] == "True" else "InProgress"


@pytest.mark.parametrize("name", SITUATIONS)
def test_kstatus_agrees_and_its_conditions_are_there_only_while_true(name: str, recorded: dict[str, Manifest]) -> None:
    *_, expected = SITUATIONS[name]
    assert kstatus(recorded[name]) == expected
    there = {row["type"]: row["status"] for row in recorded[name]["status"]["conditions"]}
    assert {there[kind] for kind in ("Reconciling", "Stalled") if kind in there} <= {"True"}


def with_reason(manifest: Manifest, kind: ConditionType, reason: Reason) -> Manifest:
    """A ready service in which one condition has this reason, and Ready follows from it."""
    row = {"status": reason.row.status.value, "reason": reason.name, "message": sentence(reason, "told")}
    told = {entry["type"]: dict(entry) for entry in manifest["status"]["conditions"]}
    told[kind] |= row
    if reason.row.status != "True":
        told["Ready"] |= row
        added = "Stalled" if reason.row.stalled else "Reconciling"
        if reason not in (Reason.Suspended, Reason.Sleeping):
            told[added] = {"type": added, **row, "status": "True"}
    return {**manifest, "status": {**manifest["status"], "conditions": list(told.values())}}


CASES = [(kind, reason) for reason in Reason for kind in reason.row.types if kind in ROOTS]


@pytest.mark.parametrize(("kind", "reason"), CASES, ids=[f"{kind}-{reason.name}" for kind, reason in CASES])
def test_every_reason_of_every_condition_has_its_health(
    kind: ConditionType, reason: Reason, recorded: dict[str, Manifest]
) -> None:
    expected = "Healthy" if reason.row.status == "True" else "Degraded" if reason.row.stalled else "Progressing"
    if reason in (Reason.Suspended, Reason.Sleeping, Reason.Paused):
        expected = "Suspended"
    status, message = health(with_reason(recorded["ready"], kind, reason))
    assert status == expected
    assert reason.row.status == "True" or message.startswith(f"{reason.name}: ")
