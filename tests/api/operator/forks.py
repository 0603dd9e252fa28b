"""Operators without their imports: a process that has done them forks another for each start.

To import what an operator needs takes two processor seconds, ten times what a start takes otherwise. The forked process
is a child of the process that asked for it, which signals it, waits for it and pays for it as for any other.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.forked import Forked, adopting_orphans, serve_forks


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
        with adopting_orphans():
            self._orders.stdin.write(json.dumps(order) + "\n")
            self._orders.stdin.flush()
            return Forked(int(self._orders.stdout.readline()))


@cache
def nursery() -> Nursery:
    """That of this process; it ends with it."""
    return Nursery()


def _serve() -> None:
    """Orders from standard input, pids to standard output; returns in each forked process, which is to be an operator
    then.
    """
    import graphpod_operator.handlers.admission_server
    import graphpod_operator.manager.run  # noqa: F401

    serve_forks(_become)


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
