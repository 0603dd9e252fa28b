"""Processes of ranks, forked from one that has imported the engine: a matrix starts thousands of them."""

import multiprocessing
import multiprocessing.connection
import os
import subprocess
import threading
from collections.abc import Mapping
from functools import cache, partial
from multiprocessing import get_context

from graphpod_policy import EngineConfig, ExitCode
from graphpod_runtime.engine.ranks import process
from graphpod_runtime.engine.ranks.meeting import Meeting
from graphpod_runtime.engine.ranks.others import Start

FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(["truth.matrix", "torch._dynamo", "graphpod_runtime.engine.ranks.following"])


def starts_of(config: EngineConfig) -> Start:
    """How processes of the ranks of `config` begin. Waits for the imports of the process that they are forked from:
    hearts of ranks do not beat before."""
    _imported()
    return partial(RankProcess, config)


@cache
def _imported() -> None:
    first = FORKS.Process(target=os.getpid)
    first.start()
    first.join()


class RankProcess:
    """One, with the words of `subprocess.Popen`. It has the environment of this process, and ends with it."""

    def __init__(self, config: EngineConfig, meeting: Meeting, rank: int) -> None:
        words = config.canonical(), meeting, rank, dict(os.environ)
        self._process = FORKS.Process(target=_follow, args=words, daemon=True)
        self._process.start()
        assert self._process.pid is not None, "it has begun"
        self.pid = self._process.pid
        self._asking = threading.Lock()  # the end of a process is reported once

    def poll(self) -> int | None:
        with self._asking:
            return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int:
        multiprocessing.connection.wait([self._process.sentinel], timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code


def _follow(config: bytes, meeting: Meeting, rank: int, environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    threading.Thread(target=_leave_with_the_first, daemon=True).start()
    os._exit(process.run(EngineConfig.parse(config), meeting, rank, process.following))


def _leave_with_the_first() -> None:
    first = multiprocessing.parent_process()
    assert first is not None, "another process has started this one"
    first.join()
    os._exit(ExitCode.Drained)
