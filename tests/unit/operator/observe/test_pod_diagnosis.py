"""From the kubelet's and the scheduler's words to a reason."""

from typing import Any

import pytest

from graphpod_operator.cache.pod import Pod
from graphpod_operator.conditions.message import sentence
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.conditions.types import UPDATES, ConditionType
from graphpod_operator.observe.pod_diagnosis import BY_EXIT, BY_WAITING, PRECEDENCE, Diagnosis, Expected, diagnose
from graphpod_operator.observe.warmup_report import Reading
from graphpod_policy import ExitCode
from tests.unit.operator.objects import pod, report


def scheduling(message: str) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"running": False, "status": {"conditions": [condition]}}


def waiting(reason: str, message: str = "because", **extra: Any) -> dict[str, Any]:
    return {"engine": {"state": {"waiting": {"reason": reason, "message": message}}, **extra}}


def ended(code: int, message: str = "", reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


def only(**made: Any) -> Diagnosis | None:
    return diagnose([Pod.of(pod(**made))], {})


SCHEDULER = "0/3 nodes are available: "


def test_a_pod_without_room_for_its_gpus_says_how_many_it_needs_of_one_node() -> None:
    raw = pod(**scheduling(SCHEDULER + "3 Insufficient nvidia.com/gpu. preemption: none"))
    for limits, words in (
        ({"nvidia.com/gpu": "4"}, "it needs 4 free nvidia.com/gpu of one node: 0/3 nodes are available: 3 Insuff"),
        ({"cpu": "4"}, "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."),
        ({"nvidia.com/gpu": "many"}, "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."),
    ):
        engine = {"name": "engine", "resources": {"limits": limits}}
        found = diagnose([Pod.of({**raw, "spec": {"containers": [engine, {"name": "side"}]}})], {})
        assert found is not None
        assert found.what.startswith(words)
    raw = pod(**scheduling(SCHEDULER + "3 Insufficient cpu."))
    engine = {"name": "engine", "resources": {"limits": {"nvidia.com/gpu": "4"}}}
    found = diagnose([Pod.of({**raw, "spec": {"containers": [engine]}})], {})
    assert found is not None
    assert found.what == SCHEDULER + "3 Insufficient cpu."


def of_gpus(count: int, **made: Any) -> Pod:
    limits = {"limits": {"nvidia.com/gpu": str(count)}} if count else {}
    return Pod.of({**pod(**made), "spec": {"containers": [{"name": "engine", "resources": limits}]}})


def test_a_pod_of_more_gpus_than_the_one_before_it_says_both_numbers() -> None:
    new = of_gpus(16, **scheduling(SCHEDULER + "3 Insufficient nvidia.com/gpu."))
    for held, words in (
        (1, "needs 16 nvidia.com/gpu of one node, and waits for 1 nvidia.com/gpu that pod old holds until it has gone"),
        (16, "waits for 16 nvidia.com/gpu that pod old holds until it has gone"),
    ):
        found = diagnose([new], {}, Expected("2026-01-01T00:00:00Z", (), 60, leaving=(of_gpus(held, name="old"),)))
        assert found is not None
        assert found.what == words


@pytest.mark.parametrize(
    ("message", "held", "reason", "words"),
    [
        ("1 Insufficient nvidia.com/gpu. preemption: none", 1, "PreviousDraining", "waits for 1 nvidia.com/gpu that"),
        (
            "1 Insufficient nvidia.com/gpu, 2 node(s) had volume node affinity conflict.", 2, "PreviousDraining",
            "waits for 2 nvidia.com/gpu that pod old holds until it has gone",
        ),
        ("3 Insufficient memory.", 0, "PreviousDraining", "waits for the room that pod old holds"),
        ("1 Insufficient cpu, 1 Insufficient nvidia.com/gpu.", 0, "PreviousDraining", "the room that pod old holds"),
        ("1 Too many pods.", 0, "PreviousDraining", "waits for the room that pod old holds"),
        (
            "1 node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode.", 0,
            "PreviousDraining", "waits for the room that pod old holds",
        ),
        ("1 Insufficient nvidia.com/gpu.", 0, "Unschedulable", "1 Insufficient nvidia.com/gpu"),
        ("3 node(s) didn't match Pod's node affinity/selector.", 1, "Unschedulable", "3 node(s) didn't match"),
        ("1 node(s) had untolerated taint {a: }.", 1, "Unschedulable", "1 node(s) had untolerated taint"),
        ("3 node(s) had volume node affinity conflict.", 1, "VolumeElsewhere", "3 node(s) had volume"),
    ],
)  # fmt: skip
def test_a_pod_waits_for_what_one_that_is_being_deleted_gives_free_and_for_nothing_else(
    message: str, held: int, reason: str, words: str
) -> None:
    new = Pod.of(pod(**scheduling(SCHEDULER + message)))
    leaving = (of_gpus(held, name="old"),)
    found = diagnose([new], {}, Expected("2026-01-01T00:00:00Z", (), 60, leaving=leaving))
    assert found is not None
    assert (found.reason.name, found.pod) == (reason, new)
    assert words in found.what


@pytest.mark.parametrize(
    ("made", "reason", "words"),
    [
        (
            scheduling(SCHEDULER + 'persistentvolumeclaim "w" not found. preemption: 0/3'),
            Reason.ClaimNotFound,
            "w does",
        ),
        (
            scheduling(SCHEDULER + "pod has unbound immediate PersistentVolumeClaims."),
            Reason.ClaimNotBound,
            "no volume",
        ),
        (scheduling(SCHEDULER + "3 Insufficient cpu. preemption: none"), Reason.Unschedulable, "3 Insufficient cpu."),
        (
            scheduling(SCHEDULER + "1 Insufficient cpu. no new claims to deallocate, preemption: 0/1"),
            Reason.Unschedulable,
            "1 Insufficient cpu.",
        ),
        (scheduling(""), Reason.Unschedulable, "no node fits"),
        (waiting("ErrImagePull", "not found"), Reason.ImagePullFailed, "ErrImagePull: not found"),
        (waiting("ImagePullBackOff"), Reason.ImagePullFailed, "ImagePullBackOff"),
        (waiting("InvalidImageName"), Reason.ImagePullFailed, "InvalidImageName"),
        (waiting("CreateContainerConfigError"), Reason.ContainerRefused, "CreateContainerConfigError"),
        (
            waiting("CrashLoopBackOff", lastState=ended(11, "ModelInvalid: no file\nmore")),
            Reason.ModelInvalid,
            "no file",
        ),
        ({"engine": {"state": ended(12, "CaptureFailed: size 4")}}, Reason.CaptureFailed, "size 4"),
        ({"engine": {"state": ended(13)}}, Reason.CaptureOutOfMemory, "ran out of memory"),
        ({"engine": {"state": ended(14)}}, Reason.SelfCheckFailed, "differed"),
        ({"engine": {"state": ended(10, "ConfigInvalid: x")}}, Reason.ConfigInvalid, "x"),
        ({"engine": {"state": ended(15)}}, Reason.EngineDied, "without a message"),
        ({"engine": {"state": ended(16)}}, Reason.EngineStuck, "exceeded its limit"),
        ({"engine": {"state": ended(17, "FeatureNotBuilt: y")}}, Reason.EngineRefused, "y"),
        ({"engine": {"state": ended(26, "GpuMissing: rank 1: sees 1")}}, Reason.GpuMissing, "rank 1: sees 1"),
        ({"engine": {"state": ended(31, "RankDied: rank 1 of 2")}}, Reason.RankDied, "rank 1 of 2"),
        ({"engine": {"state": ended(32)}}, Reason.RankStuck, "stands still"),
        ({"engine": {"state": ended(18, "PolicyRefused: z")}}, Reason.PolicyUnsupported, "z"),
        ({"engine": {"lastState": ended(0)}}, Reason.ProbeFailed, "probe failed"),
        ({"engine": {"state": ended(137, reason="OOMKilled")}}, Reason.OutOfMemory, "out of memory"),
        ({"engine": {"state": ended(137)}}, Reason.CrashLoop, "exit code 137"),
        ({"engine": {"state": ended(1, "boom\nTraceback")}}, Reason.CrashLoop, "exit code 1: boom"),
        ({"restarts": 2, "engine": {"lastState": ended(12, "CaptureFailed: a")}}, Reason.CaptureFailed, "a"),
    ],
)
def test_a_pod_that_does_not_serve_has_a_reason(made: dict[str, Any], reason: Reason, words: str) -> None:
    found = only(**made)
    assert found is not None
    assert found.reason is reason
    assert words in found.what
    assert not any(noise in found.what for noise in ("Traceback", "preemption", "claims to deallocate"))


@pytest.mark.parametrize(
    "made",
    [
        {},
        {"running": False},
        waiting("ContainerCreating"),
        {"ready": True, "engine": {"lastState": ended(12)}},
    ],
    ids=["running", "no container yet", "creating", "serves again"],
)
def test_a_pod_with_nothing_wrong_has_none(made: dict[str, Any]) -> None:
    assert only(**made) is None


def test_the_engine_tells_its_end_before_it_ends() -> None:
    failure = {"reason": "ModelInvalid", "message": "no weights"}
    reading = Reading.model_validate(report(state="Failed", failure=failure))
    dying = Pod.of(pod())
    found = diagnose([dying], {dying.uid: reading})
    assert found is not None
    assert (found.reason, found.what, found.exit_code) == (Reason.ModelInvalid, "no weights", None)


def test_a_fault_that_the_engine_reports_names_the_model_as_the_spec_does() -> None:
    failure = {"reason": "ModelInvalid", "message": "/model/torn/model.safetensors: not whole; copy it again"}
    reading = Reading.model_validate(report(state="Failed", failure=failure))
    dying = Pod.of(pod())
    found = diagnose([dying], {dying.uid: reading}, Expected("2026-11-23T00:00:00Z", (), 60, "pvc://weights/torn"))
    assert found is not None
    assert found.what == "pvc://weights/torn/model.safetensors: not whole; copy it again"


def test_of_several_failures_the_most_specific_is_told() -> None:
    pods = [
        Pod.of(pod("demo-abc-1", **scheduling(SCHEDULER + "2 Insufficient cpu"))),
        Pod.of(pod("demo-abc-2", engine={"state": ended(12, "CaptureFailed: size 4")})),
    ]
    found = diagnose(pods, {})
    assert found is not None
    assert (found.reason, found.pod.name, found.exit_code) == (Reason.CaptureFailed, "demo-abc-2", 12)


def test_every_exit_code_of_the_engine_has_a_reason_and_every_reason_a_rank() -> None:
    assert set(BY_EXIT) == set(ExitCode)
    diagnosable = {*BY_EXIT.values(), *BY_WAITING.values(), *PRECEDENCE}
    assert diagnosable == set(PRECEDENCE)
    assert len(PRECEDENCE) == len(set(PRECEDENCE))


@pytest.mark.parametrize("reason", list(Reason), ids=lambda reason: reason.name)
def test_every_message_fits_and_keeps_its_next_step(reason: Reason) -> None:
    message = sentence(reason, "x" * 1000)
    assert len(message) <= 256
    assert message.endswith(reason.row.todo)
    needs_a_step = reason.row.status.value != "True" and not reason.row.consequence
    if needs_a_step and reason.row.types not in ((ConditionType.GraphsCaptured,), (ConditionType.Degraded,), UPDATES):
        assert reason.row.todo
