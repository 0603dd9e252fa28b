"""Reading and waiting for objects of a cluster; whoever gives up says what it saw."""

import json
import time
from collections.abc import Callable
from typing import Any

from testbed import Cluster
from testbed.errors import TestbedError

POLL = 0.5  # s
LOG_LINES = 25

Manifest = dict[str, Any]


class GaveUp(Exception):
    """A wait ended without what it waited for; the text holds the object, its events and the log tails."""


def read(cluster: Cluster, kind: str, name: str, namespace: str) -> Manifest | None:
    """The object, or None when there is none."""
    text = cluster.kubectl("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
    return json.loads(text) if text.strip() else None


def listed(cluster: Cluster, kind: str, namespace: str, selector: str) -> list[Manifest]:
    found: list[Manifest] = json.loads(cluster.kubectl("get", kind, "-n", namespace, "-l", selector, "-o", "json"))[
        "items"
    ]
    return found


def wait(what: str, probe: Callable[[], bool], limit: float, evidence: Callable[[], str]) -> None:
    """Until `probe` is true. After `limit` seconds raises GaveUp with what `evidence` finds then."""
    end = time.monotonic() + limit
    while not probe():
        if time.monotonic() > end:
            raise GaveUp(f"{what}: not within {limit:.0f} s\n{evidence()}")
        time.sleep(POLL)


def conditions(found: Manifest | None) -> dict[str, Manifest]:
    """Conditions by type, only those that speak of the present generation."""
    if found is None:
        return {}
    generation = found["metadata"]["generation"]
    listed = found.get("status", {}).get("conditions", [])
    return {one["type"]: one for one in listed if one.get("observedGeneration", generation) == generation}


def rolled_out(deployment: Manifest | None) -> bool:
    """Do all wanted pods of a Deployment run its present template, with none of an older one left?"""
    if deployment is None:
        return False
    status, wanted = deployment.get("status", {}), deployment["spec"]["replicas"]
    counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")]
    return status.get("observedGeneration") == deployment["metadata"]["generation"] and counts == [wanted] * 3


def evidence(cluster: Cluster, namespace: str, *objects: str) -> str:
    """`objects` (kind/name) as YAML, then the namespace's events, then the log tail of each of its pods."""
    asked: list[tuple[str, tuple[str, ...]]] = [(name, ("get", name, "-o", "yaml")) for name in objects]
    asked.append(("pods", ("get", "pods", "-o", "wide")))
    asked.append(("events", ("get", "events", "--sort-by=.lastTimestamp")))
    parts = [f"--- {title}\n{_answer(cluster, '-n', namespace, *words)}" for title, words in asked]
    for pod in _answer(cluster, "-n", namespace, "get", "pods", "-o", "name").split():
        log = _answer(cluster, "-n", namespace, "logs", pod, "--all-containers", f"--tail={LOG_LINES}")
        ended = "{range .status.containerStatuses[*]}{.lastState.terminated.message}{.state.terminated.message}{end}"
        message = _answer(cluster, "-n", namespace, "get", pod, "-o", f"jsonpath={ended}")
        parts.append(f"--- log of {pod}\n{log}" + (f"\n--- last words of {pod}\n{message}" if message else ""))
    return "\n".join(parts)


def _answer(cluster: Cluster, *words: str) -> str:
    """kubectl's answer or its complaint: evidence is collected while something is already wrong."""
    try:
        return cluster.kubectl(*words).rstrip()
    except TestbedError as error:
        return str(error)
