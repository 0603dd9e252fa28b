"""Fronts over the scripted engine without their imports: a process that has done them, and the engine's, forks a front
for each start. The front's engine is forked as well, and is the front's child as in a pod. To import what both need
takes ten times the computing of a start.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.forked import Forked, adopting_orphans, serve_forks

if TYPE_CHECKING:
    from graphpod_runtime.engine.process import MakeRunner

ROOT = Path(__file__).resolve().parents[4]


class FrontForks:
    """The process that has imported everything, and forks."""

    def __init__(self) -> None:
        self._orders = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Forked:
        """`scripted_front.main(arguments)` as a child of this process that writes to `log`."""
        assert self._orders.stdin is not None
        assert self._orders.stdout is not None
        order = {"arguments": arguments, "environment": dict(environment), "log": str(log)}
        with adopting_orphans():
            self._orders.stdin.write(json.dumps(order) + "\n")
            self._orders.stdin.flush()
            return Forked(int(self._orders.stdout.readline()))


@cache
def front_forks() -> FrontForks:
    """That of this process; it ends with it."""
    return FrontForks()


class EngineFork:
    """The engine process of this front, with the words of `asyncio.subprocess.Process`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._forked = Forked(pid)
        self._ended = asyncio.get_running_loop().create_future()
        self._watch = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._watch, self._reap)

    @property
    def returncode(self) -> int | None:
        return self._forked.poll()

    def send_signal(self, number: int) -> None:
        self._forked.send_signal(number)

    async def wait(self) -> int:
        code: int = await asyncio.shield(self._ended)
        return code

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._watch)
        os.close(self._watch)
        self._ended.set_result(self._forked.wait())


def prepare_engine(make_runner: "MakeRunner | None" = None) -> None:
    """Forks what will fork the engine: later this process has threads and sockets, which an engine must not share."""
    from graphpod_runtime.engine import process

    orders, ordering = os.pipe()
    saying, said = os.pipe()
    stdin, writing = os.pipe()
    mine, theirs = (ordering, saying, writing), (orders, said, stdin)
    if os.fork():
        for one in theirs:
            os.close(one)

        def forked(arguments: Sequence[str]) -> int:
            with adopting_orphans():
                os.write(ordering, json.dumps(arguments).encode())
                os.close(ordering)
                between, pid = (int(word) for word in os.read(saying, 64).split())
                os.waitpid(between, 0)
            os.close(saying)
            return pid

        async def started(*command: str, start_new_session: bool, **_: Any) -> EngineFork:
            assert start_new_session
            return EngineFork(forked(command[command.index("--config") :]))  # its pipe ends with this process

        asyncio.create_subprocess_exec = started  # type: ignore[assignment]
        return
    for one in mine:
        os.close(one)
    with os.fdopen(orders) as reading:
        words = reading.read()
    if not words:
        os._exit(0)  # the front has ended before
    between = os.getpid()
    if pid := os.fork():
        os.write(said, f"{between} {pid}".encode())
        os._exit(0)
    os.close(said)
    os.dup2(stdin, 0)
    os.close(stdin)
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.exit(process.main(json.loads(words), make_runner=make_runner))


def _serve() -> None:
    """Orders from standard input, pids to standard output; returns in each forked process, which is a front then."""
    import graphpod_runtime.engine.process
    import graphpod_runtime.front.anthropic.routes
    import graphpod_runtime.front.app
    import graphpod_runtime.front.openai.api
    import graphpod_runtime.front.openapi.document  # noqa: F401
    from tests.unit.runtime.front import scripted_engine, scripted_front  # noqa: F401

    serve_forks(_become)


def _become(order: dict[str, Any]) -> None:
    """This process has the front's streams, environment and arguments."""
    log = os.open(order["log"], os.O_WRONLY | os.O_TRUNC | os.O_CREAT, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    for one in (log, nothing):
        os.close(one)
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv[1:] = order["arguments"]
    from tests.unit.runtime.front.scripted_engine import ScriptedRunner

    prepare_engine(ScriptedRunner)


if __name__ == "__main__":
    _serve()
    if len(sys.argv) > 1:
        from tests.unit.runtime.front import scripted_front

        sys.exit(scripted_front.main(sys.argv[1:]))
