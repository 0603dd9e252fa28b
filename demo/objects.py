"""Reading and waiting for objects of a cluster; whoever gives up says what it saw."""

import json
import time
from collections.abc import Callable
from typing import Any

from demo.ground import Kubectl
from testbed.errors import TestbedError

POLL = 1.0  # s
LOOK = 3.0  # s between two looks for trouble: more requests than the wait itself
LOG_LINES = 25

Manifest = dict[str, Any]


class GaveUp(Exception):
    """A wait ended without what it waited for; the text holds the object, its events and the log tails."""


def read(cluster: Kubectl, kind: str, name: str, namespace: str = "") -> Manifest | None:
    """The object, or None when there is none."""
    place = ("-n", namespace) if namespace else ()
    text = cluster.kubectl("get", kind, name, *place, "-o", "json", "--ignore-not-found")
    return json.loads(text) if text.strip() else None


def listed(cluster: Kubectl, kind: str, *where: str) -> list[Manifest]:
    """Objects of a kind; `where` is kubectl's: `-n NAMESPACE`, `-l SELECTOR`, `-A`."""
    found: list[Manifest] = json.loads(cluster.kubectl("get", kind, *where, "-o", "json"))["items"]
    return found


def wait(
    what: str,
    probe: Callable[[], bool],
    limit: float,
    evidence: Callable[[], str],
    trouble: Callable[[], str | None] = lambda: None,
) -> None:
    """Until `probe` is true. Raises GaveUp with what `evidence` finds then: after `limit` seconds, or as soon as
    `trouble` has words for why waiting will not help.
    """
    end, look = time.monotonic() + limit, time.monotonic() + LOOK
    while not probe():
        now = time.monotonic()
        if now >= look:
            look = now + LOOK
            if words := trouble():
                raise GaveUp(f"{what}: it will not be: {words}\n{evidence()}\n{what}: it will not be: {words}")
        if now > end:
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


def evidence(cluster: Kubectl, namespace: str, *objects: str) -> str:
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


def _answer(cluster: Kubectl, *words: str) -> str:
    """kubectl's answer or its complaint: evidence is collected while something is already wrong."""
    try:
        return cluster.kubectl(*words).rstrip()
    except TestbedError as error:
        return str(error)
