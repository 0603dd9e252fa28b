"""What keeps a service from serving, as its user reads it: a table of what clusters say, and goldens of what we say.

With UPDATE_GOLDENS=1 in the environment goldens/last_failure.md is written instead; read the diff before you commit it.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from graphpod_operator.cache.pod import Pod
from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.conditions.types import ConditionType
from graphpod_operator.observe.observed_state import Observed
from graphpod_operator.observe.replica_failure import NO_PODS
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.plan_input import PlanInput
from graphpod_operator.status.status import status
from tests.unit.operator.objects import INSTALLED, inference_service, planned, pod, rollout

GOLDEN = Path(__file__).with_name("goldens") / "last_failure.md"
FAIL = planned(graph={"onCaptureFailure": "Fail"})
HASH = FAIL.config_hash
NOW = "2026-01-01T00:00:00Z"


def refused(message: str) -> Observed:
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
    return Observed(rollout(0, 0, 0, conditions=[condition]), (), {})


def seen(**made: Any) -> Observed:
    return Observed(
        rollout(available=0), (Pod.of(pod(config_hash=HASH, template=FAIL.template, running=False, **made)),), {}
    )


def scheduler(message: str) -> Observed:
    row = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return seen(status={"conditions": [row]})


def gated(gate: str) -> Observed:
    raw = {
        **pod(config_hash=HASH, template=FAIL.template, running=False),
        "spec": {"schedulingGates": [{"name": gate}]},
    }
    return Observed(rollout(available=0), (Pod.of(raw),), {})


def waits(reason: str, message: str) -> Observed:
    return seen(engine={"state": {"waiting": {"reason": reason, "message": message}}})


def ended(code: int, message: str = "", reason: str = "Error") -> Observed:
    last = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    back_off = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}
    return seen(restarts=4, engine={"state": back_off, "lastState": last})


POD = 'pods "demo-6d8f9c7b5-x2k9p" is forbidden: '
NODES = "0/3 nodes are available: "
TABLE: dict[str, tuple[Observed, Reason]] = {
    "image: none of that name": (
        waits("ErrImagePull", 'failed to resolve reference "registry.example/engine:2": not found'),
        Reason.ImagePullFailed,
    ),
    "image: no right to it": (
        waits("ImagePullBackOff", 'Back-off pulling image "registry.example/engine:2": 401 Unauthorized'),
        Reason.ImagePullFailed,
    ),
    "image: no name": (waits("InvalidImageName", "couldn't parse image name"), Reason.ImagePullFailed),
    "container: no such Secret": (
        waits("CreateContainerConfigError", 'secret "api-key" not found'),
        Reason.ReferenceNotFound,
    ),
    "container: runs as root": (
        waits("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"),
        Reason.ContainerRefused,
    ),
    "scheduling: no GPU": (
        scheduler(NODES + "3 Insufficient nvidia.com/gpu. no new claims to deallocate, preemption: 0/3"),
        Reason.Unschedulable,
    ),
    "scheduling: no node of that label": (
        scheduler(NODES + "3 node(s) didn't match Pod's node affinity/selector. preemption: 0/3"),
        Reason.Unschedulable,
    ),
    "scheduling: Kueue": (gated("kueue.x-k8s.io/admission"), Reason.QueuedByKueue),
    "scheduling: a stranger's gate": (gated("example.com/wait"), Reason.SchedulingGated),
    "claim: none": (
        scheduler(NODES + 'persistentvolumeclaim "weights" not found. preemption: 0/3'),
        Reason.ClaimNotFound,
    ),
    "claim: going away": (
        scheduler(NODES + 'persistentvolumeclaim "weights" is being deleted. preemption: 0/3'),
        Reason.ClaimNotFound,
    ),
    "claim: unbound": (
        scheduler(NODES + "pod has unbound immediate PersistentVolumeClaims. preemption: 0/3"),
        Reason.ClaimNotBound,
    ),
    "claim: no volume to bind": (
        scheduler(NODES + "3 node(s) didn't find available persistent volumes to bind. preemption: 0/3"),
        Reason.ClaimNotBound,
    ),
    "claim: volume lost": (
        scheduler(NODES + 'persistentvolumeclaim "weights" bound to non-existent persistentvolume "pv-1". preemption'),
        Reason.ClaimNotBound,
    ),
    "volume: of another zone": (
        scheduler(NODES + "1 Insufficient cpu, 2 node(s) had volume node affinity conflict. preemption: 0/3"),
        Reason.VolumeElsewhere,
    ),
    "quota: used up": (
        refused(POD + "exceeded quota: team, requested: requests.cpu=4, used: requests.cpu=6, limited: requests.cpu=8"),
        Reason.QuotaExceeded,
    ),
    "quota: nothing said": (
        refused(POD + "failed quota: team: must specify limits.cpu for: engine; limits.memory for: engine"),
        Reason.QuotaExceeded,
    ),
    "limit range: too much": (
        refused(POD + "[maximum cpu usage per Container is 500m, but limit is 2]"),
        Reason.LimitRangeExceeded,
    ),
    "limit range: too little": (
        refused(POD + "minimum memory usage per Pod is 4Gi, but request is 1Gi"),
        Reason.LimitRangeExceeded,
    ),
    "limit range: too far apart": (
        refused(POD + "cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000"),
        Reason.LimitRangeExceeded,
    ),
    "pod security": (
        refused(
            POD + 'violates PodSecurity "restricted:latest": restricted volume types (volume "host" uses hostPath)'
        ),
        Reason.PodSecurityRefused,
    ),
    "admission webhook": (
        refused('admission webhook "policy.example.com" denied the request: images come from registry.example only'),
        Reason.AdmissionRefused,
    ),
    "no priority class": (refused(POD + "no PriorityClass with name high was found"), Reason.PlacementRefused),
    "another admission rule": (refused(POD + "pod rejected: not in this cluster"), Reason.PodsRefused),
    "memory of the container": (ended(137, reason="OOMKilled"), Reason.OutOfMemory),
    "capture": (ended(12, "CaptureFailed: model demo, decode, size 8: a sync"), Reason.CaptureFailed),
    "capture: memory": (ended(13, "CaptureOutOfMemory: prefill size 4096"), Reason.CaptureOutOfMemory),
    "capture: another result": (ended(14, "SelfCheckFailed: decode size 4 differs"), Reason.SelfCheckFailed),
    "capture: not compiled": (ended(19, "CompileFailed: mlp: no C++ compiler"), Reason.CompileFailed),
    "policy": (ended(18, "PolicyRefused: prefill: rule HybridModel"), Reason.PolicyUnsupported),
    "model": (ended(11, "ModelInvalid: /model: config.json is missing"), Reason.ModelInvalid),
    "configuration": (ended(10, "ConfigInvalid: graph: unknown field"), Reason.ConfigInvalid),
    "engine: died": (ended(15, "EngineDied: the engine process 7 ended by signal SIGKILL"), Reason.EngineDied),
    "engine: stuck": (ended(16, "Stuck: no progress at Loading for 361 s, the limit is 360 s"), Reason.EngineStuck),
    "rank: died": (
        ended(31, "RankDied: rank 1 of 2 has ended at Capturing, decode 2 of 4 sizes: signal SIGKILL"),
        Reason.RankDied,
    ),
    "rank: stuck": (
        ended(32, "RankStuck: rank 1 of 2 stands still at Ready: no heartbeat for 20 s"),
        Reason.RankStuck,
    ),
    "rank: no GPU": (
        ended(26, "GpuMissing: rank 1: PyTorch 2.11.0 sees 1 GPU, the engine is to run on 2"),
        Reason.GpuMissing,
    ),
    "engine: of another version": (ended(17, "FeatureNotBuilt: sleep"), Reason.EngineRefused),
    "probe": (ended(0), Reason.ProbeFailed),
    "crash loop": (ended(1, "ImportError: libcuda.so.1"), Reason.CrashLoop),
}


def told(observed: Observed, **spec: Any) -> tuple[str, str]:
    """Reason and message of the last failure; of a service that asks to fail where a capture does, unless told."""
    found = Service.of(inference_service(**(spec or {"graph": {"onCaptureFailure": "Fail"}})))
    failure = status(found, desire(PlanInput(found, INSTALLED)), None, observed, NOW, None).last_failure
    assert failure is not None
    return failure.reason, failure.message


@pytest.mark.parametrize("name", TABLE)
def test_a_failure_has_its_reason_and_ends_with_the_next_step(name: str) -> None:
    observed, reason = TABLE[name]
    assert told(observed)[0] == reason.name
    assert reason.row.todo
    pod = observed.pods[0].name if observed.pods else "-l graphpod.dev/inferenceservice=demo"
    assert told(observed)[1].endswith(
        f"; {reason.row.todo.replace('NAMESPACE', 'ns').replace('POD', pod).replace('NAME', 'demo')}"
    )


def test_the_table_reads_as_its_golden() -> None:
    rows = ["| what happened | lastFailure.reason | lastFailure.message |", "|---|---|---|"]
    rows += [f"| {name} | {' | '.join(told(observed))} |" for name, (observed, _) in TABLE.items()]
    text = "\n".join(rows) + "\n"
    if os.environ.get("UPDATE_GOLDENS"):
        GOLDEN.write_text(text)
    assert GOLDEN.read_text() == text


def test_what_keeps_pods_from_being_made_names_no_pod_and_stays_the_same_at_each_try() -> None:
    found = Service.of(inference_service(graph={"onCaptureFailure": "Fail"}))
    words = "exceeded quota: team, requested: pods=1, used: pods=3, limited: pods=3"
    tries = [
        status(
            found,
            desire(PlanInput(found, INSTALLED)),
            None,
            refused(f'pods "demo-6d8f9c7b5-{name}" is forbidden: {words}'),
            NOW,
            None,
        )
        for name in ("x2k9p", "q7m4d")
    ]
    assert tries[0] == tries[1]
    failure = tries[0].last_failure
    assert failure is not None
    assert failure.pod is None


def test_a_service_that_waits_for_room_is_scheduling_and_never_stalled() -> None:
    """Contract 14."""
    found = Service.of(inference_service(graph={"onCaptureFailure": "Fail"}))
    for name in ("scheduling: no GPU", "scheduling: Kueue", "volume: of another zone", "quota: used up"):
        said = status(found, desire(PlanInput(found, INSTALLED)), None, TABLE[name][0], NOW, None)
        assert ConditionType.Stalled not in {row.type for row in said.conditions}, name


def test_a_pod_whose_volume_does_not_come_says_where_to_look() -> None:
    found = Service.of(inference_service(graph={"onCaptureFailure": "Fail"}))
    said = status(found, desire(PlanInput(found, INSTALLED)), None, waits("ContainerCreating", ""), NOW, None)
    (ready,) = [row for row in said.conditions if row.type == "Ready"]
    assert ready.reason == Reason.Starting.name
    assert ready.message.endswith("if it stays there: kubectl -n ns describe pod demo-abc-1")
    assert said.last_failure is None


def test_every_refusal_of_pods_is_in_the_table() -> None:
    assert {reason for _, reason in TABLE.values()} >= NO_PODS
