"""A fork of this process, which has imported the engine, that forks for each start: real exits, without the seconds of
an import.

A line in is the engine's arguments, the two files apart by a tab; a line out is the exit status of the fork.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from graphpod_runtime.engine import process, runner  # noqa: F401 - with torch, for all forks
from graphpod_runtime.wire.messages import Fatal, decode_events
from graphpod_runtime.wire.socket import BEAT, WIRE, FrontEnd
from tests.forked import Program


class End(NamedTuple):
    """How a start ended: the process's exit status, and the last word that it sent to the front."""

    code: int
    fatal: Fatal


class EngineForks:
    """Starts engines as processes, one after the other."""

    def __init__(self, forking: Program) -> None:
        self._forking = forking

    def end_of(self, config: Path) -> End:
        """Of a start that fails."""
        with tempfile.TemporaryDirectory() as folder, ExitStack() as open_now:
            wire, _ = (open_now.enter_context(closing(FrontEnd(Path(folder), name))) for name in (WIRE, BEAT))
            self._forking.stdin.write(f"{config}\t{folder}\n")
            self._forking.stdin.flush()
            code = int(self._forking.stdout.readline())
            assert wire.line is not None, "the engine has never come"
            events = [event for frame in wire.line.take(1000) for event in decode_events(frame)]
        (fatal,) = (event for event in events if isinstance(event, Fatal))
        return End(code, fatal)


@contextmanager
def engine_forks() -> Iterator[EngineForks]:
    """For the tests of a module."""
    forking = Program(main, os.environ | {"OMP_NUM_THREADS": "1"})
    yield EngineForks(forking)
    forking.close()


def main() -> int:
    """Forks until its input ends."""
    for line in sys.stdin:
        config, wire = line.rstrip("\n").split("\t")
        forked = os.fork()
        if not forked:
            reading, _ = os.pipe()
            os.dup2(reading, sys.stdin.fileno())  # a front that stays
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
            sys.exit(process.main(["--config", config, "--wire", wire]))
        _, status = os.waitpid(forked, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return 0
