"""A rollout that exceeded its deadline counts as stuck, with the cause; one that is scheduled or gets on does not."""

from typing import Any

import pytest

from graphpod_operator.api.status import Status
from graphpod_operator.cache.pod import PREPARED_SECONDS, Pod
from graphpod_operator.kube.resources import Resource
from graphpod_operator.observe.pod_diagnosis import prepares_until
from graphpod_operator.observe.warmup_report import NoReading
from graphpod_operator.telemetry.label_values import Missing
from tests.unit.operator.objects import pod, rollout
from tests.unit.operator.told import DIED, HASH, LATER, NOW, UID, reading, seen, the, words
from tests.unit.operator.world import World

LATE = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}
OVERDUE = rollout(available=0, conditions=[LATE])
WAITS = {"state": {"waiting": {"reason": "ContainerCreating"}}}
SMALL = "container init was OOM-killed (memory limit too low?)"
PREPARES = {"type": "PodReadyToStartContainers", "status": "False", "lastTransitionTime": NOW}


def placed(**made: Any) -> dict[str, Any]:
    return {**pod(config_hash=HASH, **made), "spec": {"nodeName": "node"}}


def config_error(message: str) -> dict[str, Any]:
    return placed(engine={"state": {"waiting": {"reason": "CreateContainerConfigError", "message": message}}})


def unprepared() -> dict[str, Any]:
    return placed(engine=WAITS, running=False, status={"conditions": [PREPARES]})


def told(status: Status, kind: str) -> str:
    return next((condition.message for condition in status.conditions if condition.type == kind), "")


def test_a_pod_that_says_nothing_is_a_stuck_rollout() -> None:
    status = the(seen([placed()], {}, OVERDUE))
    assert words(status)["Stalled"] == ("True", "RolloutStuck")
    assert "Reconciling" not in words(status)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (placed(engine=DIED, restarts=3), "EngineDied"),
        (placed(engine={"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}}), "ImagePullFailed"),
        (config_error("container has runAsNonRoot and image will run as root"), "ContainerRefused"),
    ],
    ids=["crash loop", "image", "container"],
)
def test_what_may_heal_by_itself_is_stalled_once_the_deadline_passed(made: dict[str, Any], reason: str) -> None:
    before = the(seen([made], {}, rollout(available=0)))
    assert "Stalled" not in words(before)
    assert words(the(seen([made], {}, OVERDUE)))["Stalled"] == ("True", reason)


def test_no_pods_for_a_quota_are_stalled_once_the_deadline_passed() -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: q"}
    status = the(seen([], {}, rollout(0, 0, 0, conditions=[LATE, failure])))
    assert words(status)["Stalled"] == ("True", "QuotaExceeded")


@pytest.mark.parametrize("state", ["Loading", "Capturing", "SelfChecking"])
def test_a_start_that_makes_progress_is_not_stuck_however_long_it_takes(state: str) -> None:
    said = words(the(seen([placed()], {UID: reading(state=state)}, OVERDUE)))
    assert "Stalled" not in said
    assert said["Reconciling"][0] == "True"


@pytest.mark.parametrize(
    "status",
    [
        {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes: Insufficient cpu"}]},
        {},
    ],
    ids=["no node fits", "the scheduler has not looked"],
)
def test_a_pod_without_a_node_is_scheduling_and_never_stuck(status: dict[str, Any]) -> None:
    """Contract 14."""
    assert "Stalled" not in words(the(seen([pod(config_hash=HASH, running=False, status=status)], {}, OVERDUE)))


def test_a_service_that_is_suspended_is_not_stuck() -> None:
    assert "Stalled" not in words(the(seen([], {}, rollout(0, 0, 0, conditions=[LATE])), suspend=True))


def test_a_stuck_rollout_names_an_engine_that_does_not_answer() -> None:
    silent = NoReading(Missing.Unreachable, "10.0.0.1:8001 does not answer", misses=5)
    assert "10.0.0.1:8001 does not answer" in told(the(seen([placed()], {UID: silent}, OVERDUE)), "Ready")


@pytest.mark.parametrize(
    ("message", "what"),
    [
        ('secret "token" not found', "Secret token does not exist"),
        ('configmap "settings" not found', "ConfigMap settings does not exist"),
        ("couldn't find key pass in Secret ns/token", "Secret token has no key pass"),
        ("couldn't find key pass in ConfigMap ns/settings", "ConfigMap settings has no key pass"),
    ],
)
def test_a_variable_whose_source_is_missing_names_it(message: str, what: str) -> None:
    status = the(seen([config_error(message)], {}, rollout(available=0)))
    assert words(status)["Stalled"] == ("True", "ReferenceNotFound")
    assert what in told(status, "Ready")
    assert "create it, or correct spec.podTemplate.env" in told(status, "Ready")


@pytest.mark.parametrize(
    "engine",
    [
        {"state": {"waiting": {"reason": "RunContainerError", "message": SMALL}}},
        {"lastState": {"terminated": {"exitCode": 128, "reason": "StartError", "message": SMALL}}},
    ],
    ids=["waits", "ended before its first process"],
)
def test_a_container_that_does_not_begin_in_its_memory_names_the_limit(engine: dict[str, Any]) -> None:
    status = the(seen([placed(engine=engine)], {}, rollout(available=0)))
    assert words(status)["WorkloadAvailable"] == ("False", "OutOfMemory")
    assert "spec.resources.limits.memory" in told(status, "Ready")


def test_a_pod_that_its_node_cannot_prepare_names_what_it_mounts() -> None:
    volumes = [
        {"name": "ca", "configMap": {"name": "roots"}},
        {"name": "maybe", "secret": {"secretName": "x", "optional": True}},
    ]
    key = {"engine": {"apiKeySecretRef": {"name": "keys"}}, "podTemplate": {"volumes": volumes}}
    early = the(seen([unprepared()], {}, rollout(available=0)), **key)
    assert words(early)["WorkloadAvailable"] == ("False", "Starting")
    late = the(seen([unprepared()], {}, rollout(available=0)), before={"conditions": []}, **key)
    assert words(late)["WorkloadAvailable"] == ("False", "PodNotPrepared")
    assert "Secret keys or ConfigMap roots may not exist, or lacks a key" in told(late, "Ready")
    assert "; or it cannot mount PersistentVolumeClaim weights" in told(late, "Ready"), "its volume may not come"
    assert "create what is missing: kubectl -n" in told(late, "Ready")
    assert "Secret x" not in told(late, "Ready")
    begun = placed(engine={"state": {"running": {}}}, status={"conditions": [{**PREPARES, "status": "True"}]})
    there = the(seen([begun], {}, rollout(available=0)), before={"conditions": []}, **key)
    assert words(there)["WorkloadAvailable"] == ("False", "Starting")


def test_a_pod_without_mounts_of_others_says_what_its_node_has_not_done() -> None:
    late = the(seen([unprepared()], {}, rollout(available=0)), before={"conditions": []})
    assert "its node has neither mounted its volumes nor created its sandbox" in told(late, "Ready")
    assert "it mounts PersistentVolumeClaim weights" in told(late, "Ready")


def test_a_pull_that_fails_names_the_secret_that_it_used() -> None:
    """A kubelet pulls without one that does not exist."""
    waits = {"state": {"waiting": {"reason": "ErrImagePull", "message": "401 Unauthorized"}}}
    status = the(
        seen([placed(engine=waits)], {}, rollout(available=0)), engine={"imagePullSecrets": [{"name": "registry"}]}
    )
    assert words(status)["WorkloadAvailable"] == ("False", "ImagePullFailed")
    assert "ErrImagePull with Secret registry, if it exists: 401 Unauthorized" in told(status, "Ready")


@pytest.mark.parametrize("word", ["InvalidImageName", "ErrImageNeverPull"])
def test_an_image_that_no_registry_was_asked_for_names_no_secret(word: str) -> None:
    waits = {"state": {"waiting": {"reason": word, "message": "not that one"}}}
    status = the(
        seen([placed(engine=waits)], {}, rollout(available=0)), engine={"imagePullSecrets": [{"name": "registry"}]}
    )
    assert f"{word}: not that one" in told(status, "Ready")


def test_the_operator_looks_again_when_a_pod_has_been_prepared_for_too_long() -> None:
    one = Pod.of(unprepared())
    assert prepares_until([one], NOW) == PREPARED_SECONDS
    assert prepares_until([one], LATER) is None
    assert prepares_until([Pod.of(placed())], NOW) is None


async def test_a_reconcile_comes_back_for_a_pod_that_is_being_prepared(world: World) -> None:
    await world.reconcile()
    world.clock.now = 1020.0  # NOW
    world.cluster.put(Resource.Pod, unprepared())
    await world.relist()
    await world.reconcile()
    assert await world.reconcile() == PREPARED_SECONDS
