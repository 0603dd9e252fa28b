"""Faults as values, whom they befall, and what they let through of a body."""

import json
import threading

import pytest

from stubs import kubecall
from stubs.faults import fault
from stubs.faults.board import Board
from stubs.faults.delivery import Delivery, error_event, pieces
from stubs.faults.fault import Answer, Cut, Fault, FaultError, Freeze, Point, Slow, Turn, WatchError
from stubs.kubecall import WRITES, Call, Verb, Which


@pytest.mark.parametrize(
    ("method", "target", "query", "expected"),
    [
        ("GET", "/api/v1/namespaces/a/pods", {}, Call(Verb.LIST, "", "", "pods", "", "a")),
        ("GET", "/api/v1/pods", {"watch": "true"}, Call(Verb.WATCH, "", "", "pods")),
        ("GET", "/api/v1/pods", {"watch": "false"}, Call(Verb.LIST, "", "", "pods")),
        ("GET", "/api/v1/namespaces/a", {}, Call(Verb.GET, "", "", "namespaces", "", "", "a")),
        ("PUT", "/api/v1/namespaces/a/finalize", {}, Call(Verb.UPDATE, "", "", "namespaces", "finalize", "", "a")),
        ("POST", "/apis/apps/v1/namespaces/a/deployments", {}, Call(Verb.CREATE, "", "apps", "deployments", "", "a")),
        ("PATCH", "/apis/g/v1/namespaces/a/xs/x/status", {}, Call(Verb.PATCH, "", "g", "xs", "status", "a", "x")),
        ("DELETE", "/apis/g/v1/namespaces/a/xs", {}, Call(Verb.DELETE_ALL, "", "g", "xs", "", "a")),
        ("DELETE", "/apis/g/v1/xs/x", {}, Call(Verb.DELETE, "", "g", "xs", "", "", "x")),
        ("POST", "/api/v1/namespaces/a/pods/p/eviction", {}, Call(Verb.CREATE, "", "", "pods", "eviction", "a", "p")),
        ("GET", "/readyz", {}, Call(Verb.OTHER, "")),
        ("GET", "/apis/apps/v1", {}, Call(Verb.OTHER, "")),
    ],
)
def test_a_call_is_read_as_the_api_server_reads_it(method, target, query, expected):
    found = kubecall.read(method, target, query)
    assert found.path == target
    assert [getattr(found, f) for f in ("verb", "group", "resource", "subresource", "namespace", "name")] == [
        getattr(expected, f) for f in ("verb", "group", "resource", "subresource", "namespace", "name")
    ]


WRITE = kubecall.read("PATCH", "/api/v1/namespaces/a/configmaps/x", {}, "graphpod/0.1")
READ = kubecall.read("GET", "/api/v1/namespaces/a/configmaps/x", {}, "kubectl/v1")


@pytest.mark.parametrize(
    ("which", "writes", "reads"),
    [
        (Which(), True, True),
        (Which(WRITES), True, False),
        (Which(resource="configmaps", namespace="a"), True, True),
        (Which(resource="pods"), False, False),
        (Which(user_agent="kubectl"), False, True),
        (Which(subresource="status"), False, False),
        (Which(subresource=""), True, True),
    ],
)
def test_a_call_is_meant_when_it_agrees_with_every_field_given(which, writes, reads):
    assert (which.matches(WRITE), which.matches(READ)) == (writes, reads)


@pytest.mark.parametrize(
    ("turn", "struck"),
    [
        (Turn(), [1, 2, 3, 4, 5]),
        (Turn(first=3), [3, 4, 5]),
        (Turn(first=2, times=2), [2, 3]),
        (Turn(times=1), [1]),
    ],
)
def test_a_fault_befalls_the_matches_whose_turn_it_is(turn, struck):
    board = Board([Fault(Answer(500), Which(WRITES), turn)])
    found = [n for n in range(1, 6) if board.strike(READ) + board.strike(WRITE)]
    assert found == struck


def test_chance_comes_from_the_seed():
    def struck(seed):
        board = Board([Fault(Answer(500), Which(), Turn(probability=0.5, seed=seed))])
        return [bool(board.strike(WRITE)) for _ in range(64)]

    assert struck(1) == struck(1) != struck(2)
    assert 16 < sum(struck(1)) < 48


def test_a_lifted_fault_lets_go_and_befalls_nobody():
    board = Board([Fault(Freeze(), Which())])
    [armed] = board.strike(WRITE)
    held = threading.Thread(target=armed.until_lifted)
    held.start()
    assert held.is_alive()
    assert board.lift(armed.number)
    held.join(10)
    assert not held.is_alive()
    assert board.strike(WRITE) == []
    assert not board.lift(armed.number)


def test_waiting_for_a_fault_that_befalls_nobody_says_so():
    with pytest.raises(TimeoutError, match="befell 0 of 1 requests"):
        Board([Fault(Freeze(), Which())]).all()[0].reached(timeout=0.01)


ROWS = [
    ({"effect": "Freeze", "point": "Answer", "verbs": ["create", "patch"], "first": 3},
     Fault(Freeze(Point.Answer), Which(frozenset({Verb.CREATE, Verb.PATCH})), Turn(3))),
    ({"effect": "Answer", "status": 429, "retry_after": 1, "resource": "pods"},
     Fault(Answer(429, 1), Which(resource="pods"))),
    ({"effect": "WatchError", "after_events": 2}, Fault(WatchError(410, 2), Which())),
    ({"effect": "Slow", "delay": 0.5, "bytes_per_second": 100}, Fault(Slow(0.5, 100), Which())),
    ({"effect": "Cut", "after_bytes": 7, "probability": 0.5, "seed": 3}, Fault(Cut(7), Which(), Turn(1, None, 0.5, 3))),
]  # fmt: skip


@pytest.mark.parametrize(("row", "expected"), ROWS)
def test_a_fault_is_one_row_and_back(row, expected):
    assert fault.read(json.loads(json.dumps(row)), Which) == expected
    assert fault.write(expected) == {**row, **({"verbs": sorted(row["verbs"])} if "verbs" in row else {})}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ([], "needs an effect, one of Freeze"),
        ({"effect": "Explode"}, "needs an effect, one of Freeze"),
        ({"effect": "Answer"}, "Answer needs status"),
        ({"effect": "Answer", "status": 500, "verb": "get"}, "Answer has no verb; it has status"),
        ({"effect": "Answer", "status": 500, "verbs": ["read"]}, "no verb read; there are get"),
        ({"effect": "Freeze", "point": "Middle"}, "point is 'Middle'; it is one of Request, Answer"),
        ({"effect": "Freeze", "first": 0}, "first and times count from 1"),
        ({"effect": "Freeze", "probability": 2}, "probability is above 0"),
    ],
)
def test_a_row_that_cannot_be_is_refused_with_what_can(row, says):
    with pytest.raises(FaultError, match=says):
        fault.read(row, Which)


EVENTS = [b'{"n":1}\n', b'{"n":2}\n', b'{"n":3}\n']


@pytest.mark.parametrize(
    ("effect", "passes", "cut"),
    [
        (Cut(), b"", True),
        (Cut(after_bytes=3), EVENTS[0][:3], True),
        (Cut(after_events=1), EVENTS[0], True),
        (Cut(after_events=1, after_bytes=2), EVENTS[0] + EVENTS[1][:2], True),
        (Cut(after_bytes=12), EVENTS[0] + EVENTS[1][:4], True),
        (WatchError(410), error_event(410), False),
        (WatchError(500, after_events=2), EVENTS[0] + EVENTS[1] + error_event(500), False),
    ],
)
def test_a_body_ends_where_the_fault_says(effect, passes, cut):
    delivery = Delivery()
    said = delivery.meet(effect)
    for event in EVENTS:
        if not delivery.ended:
            said += delivery.let(event)
    assert (said, delivery.ended, delivery.cut) == (passes, True, cut)


def test_a_body_without_faults_passes_whole():
    delivery = Delivery()
    assert [delivery.let(event) for event in EVENTS] == EVENTS
    assert delivery.meet(Slow(1.0)) == b""
    assert not delivery.ended


def test_an_error_event_is_what_an_api_server_says_of_a_version_too_old():
    event = json.loads(error_event(410))
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_a_rate_breaks_a_body_into_pieces_a_twentieth_of_a_second_each():
    assert pieces(b"abcdef", 40) == [b"ab", b"cd", b"ef"]
    assert pieces(b"abcdef", None) == [b"abcdef"]
    assert pieces(b"", 40) == pieces(b"", None) == []
