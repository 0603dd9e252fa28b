"""The oracles of chaos see what they are for: each is shown one world in order, and one for each way it may be not."""

from typing import Any

import pytest

from tests.audit import Request, Trail
from tests.places import LABEL, Manifest
from tests.sim.chaos import oracles
from tests.sim.chaos.faults import FAULTS
from tests.sim.chaos.witness import Reading
from tests.sim.history import History, Version

OWNER = {"kind": "InferenceService", "name": "demo", "uid": "s"}
NOON = 1_700_000_000.0
TEN_PAST, AN_HOUR_AGO = "2023-11-14T22:13:30Z", "2023-11-14T21:13:20Z"


def child(kind: str = "Service", name: str = "demo", owner: str = "s", **more: Any) -> Manifest:
    owners = [{**OWNER, "uid": owner}]
    metadata = {"name": name, "namespace": "t-1", "uid": name, "labels": {LABEL: "demo"}, "ownerReferences": owners}
    return {"kind": kind, "metadata": {**metadata, **more}, "spec": {"replicas": 1}}


SERVICE = {"kind": "InferenceService", "metadata": {"name": "demo", "namespace": "t-1", "uid": "s"}, "spec": {}}


def test_two_runs_that_ended_alike_have_one_state() -> None:
    one = [SERVICE, child(resourceVersion="7", uid="a", annotations={"of": "t-1/demo-0123456789-abcde"})]
    other = [SERVICE, child(resourceVersion="9", uid="b", annotations={"of": "t-1/demo-0123456789-fghij"})]
    assert oracles.differences(oracles.state(one), oracles.state(other)) == []


@pytest.mark.parametrize(
    "items",
    [
        [SERVICE],
        [SERVICE, child(), child("ConfigMap")],
        [SERVICE, child(labels={LABEL: "demo", "more": "x"})],
        [{**SERVICE, "status": {"phase": "Ready"}}, child()],
    ],
    ids=["missing", "too-many", "label", "status"],
)
def test_what_ended_otherwise_is_told(items: list[Manifest]) -> None:
    assert len(oracles.differences(oracles.state([SERVICE, child()]), oracles.state(items))) == 1


def test_an_object_of_nobody_and_one_of_a_kind_too_many_are_told() -> None:
    assert oracles.orphans([SERVICE, child(), child("ConfigMap", "config")]) == []
    assert oracles.orphans([SERVICE, child(owner="gone")]) == ["Service demo belongs to nobody"]
    assert oracles.orphans([SERVICE, child(), child(name="demo-2")]) == ["Service of demo: 2"]


def writes(number: int, apart: float) -> Trail:
    one = dict.fromkeys(("user", "pod", "verb", "group", "resource", "subresource", "namespace", "name", "uri"), "x")
    made = {**one, "verb": "patch", "code": 200, "forbidden": False, "dry_run": False}
    return Trail(Request(at=NOON + index * apart, **made) for index in range(number))


def test_too_many_writes_and_a_hot_loop_are_told() -> None:
    assert oracles.excess(writes(16, 10.0), bound=16) == []
    assert len(oracles.excess(writes(17, 10.0), bound=16)) == 1
    assert len(oracles.excess(writes(16, 0.1), bound=16)) == 1


def claim(ready: str = "True", seen: int = 1) -> Version:
    row = {"type": "Ready", "status": ready, "observedGeneration": seen}
    status = {"conditions": [row], "graph": {"configHash": "c"}}
    metadata = {**SERVICE["metadata"], "generation": 1, "resourceVersion": "20"}
    return Version(NOON + 30, False, {**SERVICE, "metadata": metadata, "status": status})


def pod(number: int = 10, config: str = "c", ready: str = "True", since: str = TEN_PAST, **more: Any) -> Version:
    running = {"state": {"running": {"startedAt": "2023-11-14T22:13:20Z"}}}
    row = {"type": "Ready", "status": ready, "lastTransitionTime": since}
    metadata = {"name": "pod", "uid": "p", "labels": {LABEL: "demo"}, "annotations": {oracles.HASH: config}, **more}
    body = {"metadata": {**metadata, "resourceVersion": str(number)}}
    return Version(NOON + number, False, {**body, "status": {"conditions": [row], "containerStatuses": [running]}})


def reading(at: float = 15.0, uid: str = "p", config: str = "c", state: str = "Ready") -> Reading:
    return Reading(NOON + at, uid, config, state, state in ("Ready", "Failed"))


def told(claim: Version, pods: list[Version], heard: list[Reading]) -> list[str]:
    return oracles.lies(History([claim]), History(pods), heard)


def test_a_claim_with_proof_is_no_lie_and_no_claim_needs_none() -> None:
    assert told(claim(), [pod()], [reading()]) == []
    assert told(claim("False"), [], []) == []
    assert told(claim(seen=0), [], []) == []


@pytest.mark.parametrize(
    ("pods", "heard"),
    [
        ([], []),
        ([pod()], []),
        ([pod()], [reading(uid="other")]),
        ([pod()], [reading(config="other")]),
        ([pod(config="old")], [reading(config="old")]),
        ([pod()], [reading(state="Capturing")]),
        ([pod()], [reading(state="Failed")]),
        ([pod()], [reading(at=31.0)]),
        ([pod()], [reading(at=-5.0)]),
        ([pod(number=21)], [reading()]),
        ([pod(), pod(11, name="second", uid="q", since=AN_HOUR_AGO)], [reading()]),
    ],
    ids=[
        *("no-pod", "nothing-heard", "another-pod", "another-configuration", "old-configuration", "not-through"),
        *("failed", "later", "an-earlier-run", "a-later-pod", "one-more-serves"),
    ],
)
def test_a_claim_without_proof_is_a_lie(pods: list[Version], heard: list[Reading]) -> None:
    assert told(claim(), pods, heard) != []


def test_a_pod_that_was_just_deleted_backs_a_claim_for_ten_seconds() -> None:
    for at, lies in ((NOON + 25, 0), (NOON + 15, 1)):
        gone = Version(at, True, pod(19).body)
        assert len(told(claim(), [pod(), gone], [reading()])) == lies


def test_every_fault_has_a_name_of_its_own_and_every_word_of_the_table() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert all(fault.what and fault.shows and fault.scenarios for fault in FAULTS)
