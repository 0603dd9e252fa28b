"""Children of this process that it, or another process, has forked: their imports have been done already."""

import contextlib
import ctypes
import gc
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

SUBREAPER = 36
"""`prctl`: orphans below this process become its children."""


class Forked:
    """A child of this process, with the words of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            time.sleep(0.02)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Streams(NamedTuple):
    """File descriptors."""

    input: int
    output: int
    errors: int


def forked(program: Callable[[], int], environment: Mapping[str, str], streams: Streams) -> Forked:
    """`program` as a process of its own, that has what this one has imported and none of what it has open."""
    if pid := os.fork():
        return Forked(pid)
    code = 1
    try:
        gc.freeze()  # or the fork walks all of torch, which copies it
        _become(environment, streams)
        code = program()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - below are the frames of a test, which is another process's
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _become(environment: Mapping[str, str], streams: Streams) -> None:
    kept = [os.dup(one) for one in streams]
    for source, target in zip(kept, range(3), strict=True):
        os.dup2(source, target)
    _let_go()
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - the process's own
    sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115
    logging.root.handlers.clear()
    os.environ.clear()
    os.environ.update(environment)


def _let_go() -> None:
    """Each descriptor leads nowhere, and none is free: what a test left behind may close its own here at any time, and
    would close one of this process's if it had the number."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for one in list(Path("/proc/self/fd").iterdir()):
        if (number := int(one.name)) > 2:
            with contextlib.suppress(OSError):  # the listing's own
                os.fstat(number)
                os.dup2(nowhere, number, inheritable=False)


def serve_forks(become: Callable[[dict[str, Any]], None]) -> None:
    """Orders from standard input, pids to standard output. Returns in each forked process, once that has become what
    its order says; and at the end of the orders."""
    assert threading.active_count() == 1, "a fork keeps only its own thread"
    gc.freeze()
    for line in sys.stdin:
        pid, end = os.pipe()
        between = os.fork()
        if not between:
            if forked := os.fork():
                os.write(end, str(forked).encode())
                os._exit(0)  # an orphan's next parent is whoever adopts orphans
            os.close(pid)
            os.close(end)
            become(json.loads(line))
            return
        os.waitpid(between, 0)
        print(os.read(pid, 32).decode(), flush=True)
        os.close(pid)
        os.close(end)


class Program(Forked):
    """A `forked` program, with pipes for its input and output."""

    def __init__(self, program: Callable[[], int], environment: Mapping[str, str], errors: int = 2) -> None:
        reads, asks = os.pipe()
        hears, tells = os.pipe()
        super().__init__(forked(program, environment, Streams(reads, tells, errors)).pid)
        os.close(reads)
        os.close(tells)
        self.stdin, self.stdout = os.fdopen(asks, "w"), os.fdopen(hears)

    def close(self) -> None:
        """Its input ends, and so does it."""
        self.stdin.close()
        self.wait()
        self.stdout.close()


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """A process whose parent ends becomes a child of this process, if it is below it."""
    _subreaper(True)
    try:
        yield
    finally:
        _subreaper(False)


def _subreaper(yes: bool) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(SUBREAPER, int(yes), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
