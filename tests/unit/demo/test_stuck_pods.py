"""Pods that will not start, told in the words of who says so."""

import pytest

from demo.objects import GaveUp, wait
from demo.stuck_pods import HOPELESS, refused, stuck


def pod(reason: str, **metadata: str) -> dict:
    status = {
        "image": "registry.example/operator:1",
        "state": {"waiting": {"reason": reason, "message": "no such host"}},
    }
    return {
        "metadata": {"namespace": "here", "name": "p", **metadata},
        "status": {"containerStatuses": [{"image": "other", "state": {"running": {}}}, status]},
    }


@pytest.mark.parametrize("reason", sorted(HOPELESS))
def test_a_container_that_waits_for_what_will_not_come(reason: str) -> None:
    told = stuck([pod("ContainerCreating"), pod(reason)]) or ""
    assert told.startswith(f"{reason}: pod here/p, image registry.example/operator:1: no such host\n")


def test_a_first_failed_pull_is_given_its_second_try() -> None:
    assert stuck([pod("ErrImagePull"), pod("ContainerCreating"), {"metadata": {}, "status": {}}]) is None


def test_a_pod_that_is_being_deleted_says_nothing_about_the_next() -> None:
    assert stuck([pod("ImagePullBackOff", deletionTimestamp="2026-11-21T12:00:00Z")]) is None


def test_a_pod_that_is_not_let_in_is_told_by_the_event_of_its_owner() -> None:
    event = {
        "involvedObject": {"uid": "1"},
        "message": 'pods "p" is forbidden: violates PodSecurity "restricted:latest"',
    }
    assert 'violates PodSecurity "restricted:latest"' in (refused([event], [{"metadata": {"uid": "1"}}]) or "")
    assert refused([event], [{"metadata": {"uid": "2"}}]) is None


def test_a_wait_ends_with_the_trouble_and_says_it_first_and_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("demo.objects.LOOK", 0.0)
    with pytest.raises(GaveUp) as told:
        wait("pod ready", lambda: False, 60, lambda: "the evidence", lambda: "ImagePullBackOff: x")
    assert str(told.value).splitlines() == [
        "pod ready: it will not be: ImagePullBackOff: x",
        "the evidence",
        "pod ready: it will not be: ImagePullBackOff: x",
    ]
