"""Work begun before its stage."""

import threading

import pytest

from demo.background_work import BackgroundWork
from demo.ground import Say
from testbed.errors import TestbedError


def test_work_runs_before_anybody_waits_and_its_lines_come_in_order_when_somebody_does() -> None:
    done = threading.Event()

    def work(say: Say) -> int:
        say("one")
        say("two")
        done.set()
        return 7

    ahead = BackgroundWork(work)
    assert done.wait(10)
    lines: list[str] = []
    assert ahead.wait(lines.append) == 7
    assert lines == ["one", "two"]
    assert ahead.wait(lines.append) == 7
    assert lines == ["one", "two"]


def test_an_error_is_raised_where_somebody_waits() -> None:
    def work(say: Say) -> None:
        say("trying")
        raise TestbedError("no such image")

    ahead, lines = BackgroundWork(work), list[str]()
    with pytest.raises(TestbedError, match="no such image"):
        ahead.wait(lines.append)
    assert lines == ["trying"]
