"""Pods that are being deleted: how long a new one may wait for what they hold."""

from typing import Any

from graphpod_operator.cache.leaving_pods import LATE_SECONDS, SETTLE_SECONDS, LeavingPods
from graphpod_operator.cache.pod import Pod
from tests.unit.operator.objects import pod

NOW = "2026-01-01T00:00:00Z"
GOES_BY = "2026-01-01T00:00:45Z"
LATE = "2026-01-01T00:01:45Z"


def leaving(name: str = "old", phase: str = "Running", node: str = "node-1", **metadata: Any) -> Pod:
    raw = pod(name)
    raw["metadata"] |= {"deletionTimestamp": GOES_BY, "deletionGracePeriodSeconds": 45, **metadata}
    return Pod.of({**raw, "spec": {"nodeName": node}, "status": {**raw["status"], "phase": phase}})


def names(pods: tuple[Pod, ...]) -> list[str]:
    return [one.name for one in pods]


def test_a_pod_counts_from_its_deletion_until_the_scheduler_has_tried_again() -> None:
    pods = LeavingPods()
    assert names(pods.look([leaving(), Pod.of(pod("new"))], 0.0, NOW)) == ["old"]
    assert pods.pause(0.0, NOW) == 45 + LATE_SECONDS
    assert names(pods.look([Pod.of(pod("new"))], 10.0, NOW)) == ["old"]
    assert pods.pause(10.0, NOW) == SETTLE_SECONDS
    assert names(pods.look([], 9.0 + SETTLE_SECONDS, NOW)) == ["old"]
    assert pods.pause(9.0 + SETTLE_SECONDS, NOW) == 1.0
    assert pods.look([], 10.0 + SETTLE_SECONDS, NOW) == ()
    assert pods.pause(10.0 + SETTLE_SECONDS, NOW) is None


def test_a_pod_that_does_not_go_in_its_time_is_not_waited_for() -> None:
    pods = LeavingPods()
    assert pods.look([leaving()], 0.0, LATE) == ()
    assert pods.pause(0.0, LATE) is None


def test_a_pod_that_holds_no_room_is_not_waited_for() -> None:
    for one in (leaving(node=""), leaving(phase="Failed"), Pod.of(pod())):
        assert LeavingPods().look([one], 0.0, NOW) == ()


def test_a_pod_that_has_ended_but_exists_counts_as_gone() -> None:
    pods = LeavingPods()
    pods.look([leaving()], 0.0, NOW)
    assert names(pods.look([leaving(phase="Succeeded")], 1.0, NOW)) == ["old"]
    assert pods.look([leaving(phase="Succeeded")], 1.0 + SETTLE_SECONDS, NOW) == ()


def test_pods_that_leave_one_by_one_are_forgotten() -> None:
    pods = LeavingPods()
    for number in range(100):
        pods.look([leaving(f"p{number}", uid=f"u{number}")], number * SETTLE_SECONDS, NOW)
    assert pods.look([], 200 * SETTLE_SECONDS, NOW) == (leaving("p99", uid="u99"),)
    assert pods.look([], 201 * SETTLE_SECONDS, NOW) == ()
