"""A seeded sample of the attacks, on a front with the scripted engine; `make fuzz-api` has all, on real weights."""

import httpx2
import pytest

from peers.fuzz.__main__ import counts
from peers.fuzz.attacks import Wrong, break_off_streams, hold_connections, post_all, send_slowly
from peers.fuzz.bodies import VALID, Drawn, drawn
from peers.fuzz.leaks import held, wait_until_idle
from tests.unit.runtime.front.conftest import Front, front  # noqa: F401

SEED, BODIES = 7, 300
BODY = {"model": "echo", "prompt": "ab", "max_tokens": 2000, "ignore_eos": True}


def test_a_seed_gives_the_same_bodies() -> None:
    assert list(drawn(SEED, 40, "echo")) == list(drawn(SEED, 40, "echo"))
    assert list(drawn(SEED, 40, "echo")) != list(drawn(SEED + 1, 40, "echo"))
    assert {one.path for one in drawn(SEED, BODIES, "echo")} == set(VALID)
    assert sum(1 for _ in drawn(2, 5000, "echo")) == 5000, "some bodies lose all of their fields"


def test_mutated_bodies_get_documented_answers_and_leave_nothing(front: Front) -> None:  # noqa: F811
    document = httpx2.get(front.http + "/openapi.json").json()
    statuses = post_all(front.http, document, drawn(SEED, BODIES, "echo"))
    assert statuses.total() == BODIES
    assert min(statuses[200], statuses[400]) > 30, statuses
    assert wait_until_idle(front.http) == {}


def test_an_undocumented_answer_is_found(front: Front) -> None:  # noqa: F811
    with pytest.raises(Wrong, match="answered 400"):
        post_all(
            front.http, {"paths": {"/tokenize": {"post": {"responses": {"200": {}}}}}}, [Drawn("/tokenize", {}, b"{")]
        )


def test_broken_streams_slow_senders_and_connections_leave_nothing(front: Front) -> None:  # noqa: F811
    before = held(front.process.pid)
    break_off_streams(front.http, BODY, 60)
    assert send_slowly(front.http, BODY, 40) == 40
    assert hold_connections(front.http, 200) == {"HTTP/1.1 200 OK": 200}

    def closed() -> bool:
        return held(front.process.pid).files <= before.files + 4

    assert wait_until_idle(front.http, closed) == {}


def test_the_counts_of_schemathesis_are_read() -> None:
    said = "Warnings:\n\nTest cases:\n  1101 generated, 1099 passed, 2 found 2 unique failures, 16 skipped\n\nSeed: 1\n"
    assert counts(said) == {"generated": 1101, "passed": 1099, "found": 2}
    assert counts("Test cases:\n  9 generated, 9 passed, 1 errored\n")["errored"] == 1
    assert counts("no such lines") == {}
