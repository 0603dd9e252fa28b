"""The one way to wait, and what it shows when it gives up."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.cluster import Cluster
from testbed.errors import TestbedError
from tests.audit import recent

OPERATOR = ("logs", "-n", "graphpod-system", "deployment/graphpod-operator", "--tail=2000")
ENGINES = ("logs", "-l", "graphpod.dev/inferenceservice", "--all-containers", "--prefix", "--tail=25")
LINES = 120  # of each, counted from the end
LAST = 15  # lines of a log, whatever they are about
AUDIT_SECONDS = 60.0
OFTEN = 0.1  # s between two calls of a check, at first
PATIENCE = 30
"""A wait of so many seconds is looked at once a second: to look costs the machine that is waited for."""


@dataclass
class Eventually:
    """`eventually(check)` calls `check` until it neither raises AssertionError or TestbedError (a kubectl that failed:
    the object is not there yet, the API server is away) nor returns False, None or [].

    Returns what `check` returned. On giving up it raises AssertionError with the last answer and the evidence: that of
    the places the test made or, where it made none, of the clusters it uses; then the tail of the files in `logs` (an
    operator's, for one), and of whatever callables the test put into `evidence`.
    """

    clusters: Callable[[], list[Cluster]] = list
    places: list[tuple[Cluster, str]] = field(default_factory=list)
    logs: list[Path] = field(default_factory=list)
    evidence: list[Callable[[], str]] = field(default_factory=list)

    def __call__(self, check: Callable[[], Any], timeout: float = 60.0, every: float | None = None) -> Any:
        """Calls it `every` so many seconds or, where none are given, ever more seldom."""
        __tracebackhide__ = True
        deadline = (first := time.monotonic()) + timeout
        while True:
            began = time.monotonic()
            try:
                answer = check()
                last = f"the last answer was {answer!r}"
                if answer is not None and answer is not False and answer != []:
                    return answer
            except (AssertionError, TestbedError) as e:
                last = str(e) or repr(e)
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {timeout:g} s: {last}\n{self.told()}")
            now = time.monotonic()
            pause = max(OFTEN, (now - first) / PATIENCE) if every is None else every
            time.sleep(max(pause, now - began))  # a check that costs much leaves the machine to others

    def told(self) -> str:
        """The evidence as it is now."""
        where = self.places or [(cluster, "") for cluster in self.clusters()]
        parts = [part for place in where for part in seen(*place)]
        names = [namespace for _, namespace in where]
        parts += [f"--- {log.name} of {log.parent.name}\n{tail(log.read_text(), names)}" for log in self.logs]
        return "\n".join([*parts, *(source() for source in self.evidence)])

    def __repr__(self) -> str:
        return "eventually"  # pytest prints it with each failure


def seen(cluster: Cluster, namespace: str = "") -> Iterator[str]:
    """Services, workloads, events, logs and the last minute of the audit log, of a namespace or of all."""
    scope = ("-n", namespace) if namespace else ("-A",)
    commands = [
        ("get", "inferenceservices.graphpod.dev", *scope, "-o", "yaml"),
        ("get", "deployments,pods,jobs", *scope, "-o", "wide"),
        ("get", "events", *scope, "--sort-by=.lastTimestamp"),
    ]
    if cluster.nodes:  # elsewhere no container runs
        commands += [ENGINES[:1] + scope + ENGINES[1:]] if namespace else []
        commands += [OPERATOR]
    for command in commands:
        try:
            said = cluster.kubectl(*command)
        except TestbedError as e:  # no such kind or deployment in this cluster: evidence as well
            said = str(e)
        text = tail(said, [namespace]) if command is OPERATOR else "\n".join(said.splitlines()[-LINES:])
        yield f"--- {cluster.name}: kubectl {' '.join(command)}\n{text}"
    if not cluster.audit_log.exists():
        return  # it is not up, as the lines above say
    trail = recent(cluster.audit_log, AUDIT_SECONDS)
    trail = trail.of(namespace) if namespace else trail.steady()
    where = f"of {namespace}" if namespace else "without heartbeats"
    title = f"--- {cluster.name}: audit log of the last {AUDIT_SECONDS:.0f} s {where}, writes first"
    yield f"{title}\n{trail.told() or 'no request'}"


def tail(log: str, namespaces: Iterable[str] = ()) -> str:
    """The last lines of the operator's log that name one of the namespaces, and its very last, in the log's order."""
    lines = log.splitlines()
    ours = [at for at, line in enumerate(lines) if any(f"{name}/" in line for name in namespaces if name)]
    shown = sorted({*ours[-LINES:], *range(max(0, len(lines) - LAST), len(lines))})
    return "\n".join(_plain(lines[at]) for at in shown)


def _plain(line: str) -> str:
    """A line of JSON as a person reads it; any other as it is."""
    try:
        said = json.loads(line)
        at, level, logger, message = (said.pop(key) for key in ("time", "level", "logger", "message"))
        trace = said.pop("traceback", "")
        fields = (f"{key}={value}" for key, value in said.items())
        words = " ".join([f"{at[11:23]} {level} {logger.rpartition('.')[2]}: {message}", *fields])
        return "\n".join(filter(None, (words, trace)))
    except (ValueError, TypeError, KeyError):  # what Python itself says, for one
        return line
