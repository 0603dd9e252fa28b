"""The one way to wait returns the answer, or the evidence."""

from collections.abc import Callable
from typing import Any

import pytest


def test_it_returns_the_first_answer_that_is_one(eventually: Callable[..., Any]) -> None:
    answers = iter([None, False, 0])
    assert eventually(lambda: next(answers), every=0) == 0


def test_it_waits_while_an_assertion_fails(eventually: Callable[..., Any]) -> None:
    left = iter([3, 2, 1])

    def check() -> str:
        assert next(left) == 1
        return "done"

    assert eventually(check, every=0) == "done"


def test_it_gives_up_with_the_last_answer_and_the_evidence(eventually: Any) -> None:
    eventually.evidence.append(lambda: "last line of the log: no room")
    with pytest.raises(AssertionError, match=r"not within 0 s: the last answer was False\n.*no room"):
        eventually(lambda: False, timeout=0)


def test_other_errors_are_not_waited_for(eventually: Callable[..., Any]) -> None:
    def check() -> None:
        raise KeyError("spec")

    with pytest.raises(KeyError):
        eventually(check)
