"""Operators without their imports: a process that has done them forks another for each start.

To import what an operator needs takes two processor seconds, ten times what a start takes otherwise. The forked process
is a child of the process that asked for it, which signals it, waits for it and pays for it as for any other.
"""

import ctypes
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

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

    def wait(self, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"operator {self.pid}", timeout)
            time.sleep(0.02)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Nursery:
    """The process that has imported everything, and forks."""

    def __init__(self) -> None:
        self._orders = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, before: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Forked:
        """`graphpod ARGUMENTS`, after the Python code `before`, as a child of this process that writes to `log`."""
        assert self._orders.stdin is not None
        assert self._orders.stdout is not None
        order = {"before": before, "arguments": arguments, "environment": dict(environment), "log": str(log)}
        _adopt_orphans(True)
        try:
            self._orders.stdin.write(json.dumps(order) + "\n")
            self._orders.stdin.flush()
            return Forked(int(self._orders.stdout.readline()))
        finally:
            _adopt_orphans(False)


@cache
def nursery() -> Nursery:
    """That of this process; it ends with it."""
    return Nursery()


def _adopt_orphans(yes: bool) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(SUBREAPER, int(yes), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _serve() -> None:
    """Orders from standard input, pids to standard output; returns in each forked process, which is to be an operator
    then.
    """
    import graphpod_operator.handlers.admission_server
    import graphpod_operator.manager.run  # noqa: F401

    assert threading.active_count() == 1, "a fork keeps only its own thread"
    gc.freeze()
    for line in sys.stdin:
        pid, end = os.pipe()
        between = os.fork()
        if not between:
            if forked := os.fork():
                os.write(end, str(forked).encode())
                os._exit(0)  # an orphan's next parent is whoever adopts orphans
            os.close(end)
            _become(json.loads(line))
            return
        os.waitpid(between, 0)
        print(os.read(pid, 32).decode(), flush=True)
        os.close(pid)
        os.close(end)


def _become(order: dict[str, Any]) -> None:
    """This process has the operator's streams, environment and command line."""
    from kubernetes.aio.config import kube_config

    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.environ.clear()
    os.environ.update(order["environment"])
    kube_config.KUBE_CONFIG_DEFAULT_LOCATION = os.environ["KUBECONFIG"]  # read at its import
    sys.argv[1:] = order["arguments"]
    exec(order["before"], {})


if __name__ == "__main__":
    _serve()
    if len(sys.argv) > 1:
        from graphpod_operator.cli import main

        sys.exit(main())
