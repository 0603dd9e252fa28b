"""How often and how long something is tried again: until nothing has moved for the stall deadline."""

import threading
from collections.abc import Callable
from typing import TypeVar

from graphpod_sources.problem import Problem
from graphpod_sources.progress import Progress

FIRST, LONGEST = 0.25, 15.0  # s
Result = TypeVar("Result")


class Stopped(Exception):
    """The fetch has ended elsewhere; the thread ends, too."""


class Patience:
    """Waits between tries. `stop` ends every wait."""

    def __init__(self, stall_seconds: float, progress: Progress, stop: threading.Event) -> None:
        self.stall_seconds, self.progress, self.stop = stall_seconds, progress, stop

    def wait(self, problem: Problem, failures: int) -> None:
        """Wait before another try. Raises the problem when there is none: a source asks for longer than the deadline,
        or nothing has moved within it.
        """
        pause = min(LONGEST, FIRST * 2 ** min(failures, 10)) if problem.retry_after is None else problem.retry_after
        if not problem.retry or self.progress.idle + pause > self.stall_seconds:
            raise problem
        if self.stop.wait(pause):
            raise Stopped

    def call(self, action: Callable[[], Result]) -> Result:
        """The result of `action`, tried again while patience lasts."""
        failures = 0
        while True:
            try:
                return action()
            except Problem as problem:
                self.wait(problem, failures)
                failures += 1
