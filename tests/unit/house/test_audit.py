"""The oracles, asked about a recorded piece of an audit log: a service is applied, made, and applied again."""

import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.audit import BLOCK, Audit, Right, Thing, Trail, recent

RECORDED = Path(__file__).with_name("audit.jsonl").read_text()
NAMESPACE = "t-bb07ec61"
OPERATOR = "operator"
DEPLOYMENT = Thing("apps", "deployments", NAMESPACE, "demo")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    place = tmp_path / "audit.log"
    place.write_text(RECORDED)
    return place


@pytest.fixture
def trail(log: Path) -> Trail:
    return Audit(log).since()


def line(at: float, writer: str = "a", name: str = "x", **changes: Any) -> str:
    """A line of the log: somebody patches a ConfigMap."""
    extra = {"authentication.kubernetes.io/pod-name": [writer]}
    return json.dumps(
        {
            "auditID": os.urandom(8).hex(),
            "stage": "ResponseComplete",
            "requestURI": f"/api/v1/namespaces/n/configmaps/{name}",
            "verb": "patch",
            "user": {"username": "operator", "extra": extra},
            "objectRef": {"resource": "configmaps", "namespace": "n", "name": name},
            "responseStatus": {"code": 200},
            "requestReceivedTimestamp": datetime.fromtimestamp(at, UTC).isoformat(),
            **changes,
        }
    )


Write = Callable[..., Trail]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    """The trail of lines written by the test."""

    def write(*lines: str) -> Trail:
        place = tmp_path / "written.log"
        place.write_text("".join(f"{one}\n" for one in lines))
        return Audit(place).since()

    return write


def test_writes_are_told_by_user_and_namespace(trail: Trail) -> None:
    assert [one.kind for one in trail.by(OPERATOR).of(NAMESPACE).writes() if one.code < 400] == [
        *("serviceaccounts", "configmaps", "services", "deployments", "inferenceservices/status"),
        *("configmaps", "deployments", "inferenceservices/status"),
    ]


def test_what_stores_nothing_is_no_write(trail: Trail) -> None:
    """A dry run, a token, a list, a watch, a question about the server."""
    assert {one.kind for one in trail if "dryRun" in one.uri} == {"inferenceservices"}
    assert "serviceaccounts/token" in {one.kind for one in trail}
    written = trail.writes()
    assert not [one for one in written if "dryRun" in one.uri or one.subresource == "token"]
    assert {one.verb for one in written} == {"create", "update", "patch"}


def test_a_watch_is_one_request_though_the_log_tells_its_begin_and_its_end(trail: Trail) -> None:
    assert RECORDED.count('"verb":"watch"') == 2
    assert len([one for one in trail if one.verb == "watch"]) == 1


def test_conflicts_are_found_with_their_writer(trail: Trail) -> None:
    (conflict, *_) = trail.conflicts()
    assert (conflict.user, conflict.kind) == (
        "system:serviceaccount:kube-system:deployment-controller",
        "deployments/status",
    )


def test_what_authorization_refused_is_told_apart_from_what_admission_refused(trail: Trail) -> None:
    assert {one.user for one in trail.forbidden()} == {"user2"}
    assert {one.user for one in trail if one.code == 403} == {"user2", OPERATOR}


def test_rights_are_verb_resource_and_scope_of_what_was_allowed(trail: Trail) -> None:
    used = trail.by(OPERATOR).rights()
    assert Right("watch", "", "serviceaccounts", "") in used
    assert Right("patch", "graphpod.dev", "inferenceservices/status", NAMESPACE) in used
    assert trail.by("user2").rights() == set()


def test_an_object_written_more_often_than_allowed_is_hot(trail: Trail) -> None:
    ours = trail.by(OPERATOR)
    assert DEPLOYMENT not in ours.hot(times=2, within=10)
    assert ours.hot(times=1, within=10)[DEPLOYMENT] == 2
    assert DEPLOYMENT not in ours.hot(times=1, within=0.5), "a second lies between the two"


@pytest.mark.parametrize(("within", "most"), [(0.9, 1), (1.0, 2), (2.5, 3), (100.0, 6)])
def test_the_hottest_stretch_counts_wherever_it_lies(written: Write, within: float, most: int) -> None:
    trail = written(*(line(at) for at in (10, 20, 30, 31, 32, 40)))
    assert set(trail.hot(times=0, within=within).values()) == {most}


def test_refused_writes_make_an_object_hot_too(written: Write) -> None:
    refused = [line(at, responseStatus={"code": 422}) for at in range(5)]
    assert written(*refused).hot(times=4, within=10) == {Thing("", "configmaps", "n", "x"): 5}


def test_a_quiet_window_has_no_write_but_heartbeats(written: Write) -> None:
    lease = {"apiGroup": "coordination.k8s.io", "resource": "leases", "namespace": "n", "name": "leader"}
    trail = written(line(1, verb="update", objectRef=lease), line(2, verb="get"))
    assert len(trail.writes()) == 1
    assert trail.steady().writes() == ()


def test_two_writers_of_one_object_are_named(trail: Trail, written: Write) -> None:
    assert trail.by(OPERATOR).contested() == {}
    rival = {"username": "rival"}
    shared = written(line(1), line(2, user=rival), line(3, user=rival, name="y")).contested()
    assert shared == {Thing("", "configmaps", "n", "x"): {"operator in a", "rival"}}


def test_two_replicas_of_one_account_are_two_writers(written: Write) -> None:
    trail = written(line(1, "a"), line(2, "b"), line(3, "a", name="y"))
    assert trail.contested() == {Thing("", "configmaps", "n", "x"): {"operator in a", "operator in b"}}


def test_leaders_one_after_the_other_have_one_term_each(written: Write) -> None:
    trail = written(line(1, "a"), line(2, "a"), line(5, "b"))
    assert [(term.writer, term.first, term.last, term.writes) for term in trail.terms()] == [
        ("operator in a", 1, 2, 2),
        ("operator in b", 5, 5, 1),
    ]


def test_a_writer_that_writes_on_in_anothers_term_has_two(written: Write) -> None:
    trail = written(line(1, "a"), line(2, "b"), line(3, "a"))
    assert [term.writer[-1] for term in trail.terms()] == ["a", "b", "a"]


def test_a_line_is_read_once_and_a_torn_one_when_it_is_whole(log: Path) -> None:
    audit = Audit(log)
    before = len(audit.since())
    mark = audit.mark()
    with log.open("a") as file:
        text = line(1)
        file.write(text[:40])
        file.flush()
        assert audit.since(mark) == ()
        file.write(text[40:] + "\n")
    assert [one.name for one in audit.since(mark)] == ["x"]
    log.write_bytes(b"\0" * log.stat().st_size)  # were a line read again, it could not be
    assert len(audit.since()) == before + 1


def test_a_request_that_nobody_was_authenticated_for_is_one_without_a_user(log: Path) -> None:
    refused = {**json.loads(line(1)), "user": {}, "responseStatus": {"code": 401}}
    audit = Audit(log)
    mark = audit.mark()
    with log.open("a") as file:
        file.write(json.dumps(refused) + "\n")
    assert [(one.user, one.pod, one.code) for one in audit.since(mark)] == [("", "", 401)]


def test_the_last_minute_is_found_at_the_end_of_a_long_log(tmp_path: Path) -> None:
    place, now = tmp_path / "audit.log", time.time()
    old = line(now - 3600, name="old")
    young = [line(now - 10, name=f"young{number}") for number in range(3 * BLOCK // len(old))]
    place.write_text("\n".join([*[old] * (3 * BLOCK // len(old)), *young]) + "\n")
    assert [one.name for one in recent(place, 60)] == [f"young{number}" for number in range(len(young))]


def test_a_person_reads_the_writes_first_then_the_reads_counted(trail: Trail) -> None:
    told = trail.of(NAMESPACE).told(longest=2).splitlines()
    assert told[:4] == [
        "… 22 earlier writes …",
        f"14:41:53.754 200 operator: patch inferenceservices/status {NAMESPACE}/demo",
        f"14:42:01.170 403 operator: patch configmaps {NAMESPACE}/demo-engine-097c9e80a2",
        "    2 × 404 operator: get configmaps",
    ]
