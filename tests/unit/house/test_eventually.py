"""The one way to wait returns the answer, or the evidence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import TestbedError
from tests.eventually import LAST, tail


def test_it_returns_the_first_answer_that_is_one(eventually: Callable[..., Any]) -> None:
    answers = iter([None, False, [], 0])
    assert eventually(lambda: next(answers), every=0) == 0


def test_it_waits_while_an_assertion_fails(eventually: Callable[..., Any]) -> None:
    left = iter([3, 2, 1])

    def check() -> str:
        assert next(left) == 1
        return "done"

    assert eventually(check, every=0) == "done"


def test_it_waits_while_a_command_of_the_cluster_fails(eventually: Callable[..., Any]) -> None:
    left = iter([False, True])

    def check() -> str:
        if not next(left):
            raise TestbedError("not found")
        return "there"

    assert eventually(check, every=0) == "there"


def test_it_gives_up_with_the_last_answer_and_the_evidence(eventually: Any) -> None:
    eventually.evidence.append(lambda: "last line of the log: no room")
    with pytest.raises(AssertionError, match=r"not within 0 s: the last answer was False\n.*no room"):
        eventually(lambda: False, timeout=0)


def test_of_an_operators_log_it_shows_what_names_the_place_and_the_last_words(tmp_path: Path) -> None:
    log = tmp_path / "log"
    said = {"time": "2026-11-21T14:42:07.572+00:00", "level": "info", "logger": "graphpod_operator.reconcile"}
    lines = [
        json.dumps(said | {"object": f"{name}/demo", "message": "created"}) for name in ("t-1", *["t-2"] * 100, "t-3")
    ]
    log.write_text("\n".join([*lines, "Killed"]))
    told = tail(log.read_text(), ["t-1"]).splitlines()
    assert told[0] == "14:42:07.572 info reconcile: created object=t-1/demo"
    assert told[-2:] == ["14:42:07.572 info reconcile: created object=t-3/demo", "Killed"]
    assert len(told) == 1 + LAST


def test_other_errors_are_not_waited_for(eventually: Callable[..., Any]) -> None:
    def check() -> None:
        raise KeyError("spec")

    with pytest.raises(KeyError):
        eventually(check)
