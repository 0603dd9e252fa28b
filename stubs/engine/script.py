"""A story as a kubelet sees it: when a pod turns ready, when its container ends. Pure.

The script travels as an annotation, and the Stages in stages.yaml play it. Times are seconds after the container's
start; what is absent never happens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from stubs.engine.story import Story

PROBE_SECONDS = 0.3
"""Between the engine's own Ready and the kubelet's, so that the admin port is never behind the pod's status."""
KILLED = {"code": 0, "reason": "Completed", "message": ""}
"""The kubelet's SIGTERM after a failed probe: the engine drains and exits 0."""


def script(story: Story, drain: float, container: Mapping[str, Any]) -> str:
    """Canonical JSON: `ready`, `unready`, `flap`, `end` {`at`, `code`, `reason`, `message`} and `drain`, the seconds
    from SIGTERM to exit. `container`: the engine's, of the pod's spec, for its probes.
    """
    times: dict[str, Any] = {"drain": drain}
    ready = None if story.ready_at is None else story.ready_at + PROBE_SECONDS
    if ready is not None and story.silent(ready):
        ready = None
    end: dict[str, Any] | None = None
    if story.end is not None:
        reason = "OOMKilled" if story.end.code == 137 else "Error"
        end = {"at": story.end.at, "code": story.end.code, "reason": reason, "message": story.end.line}
    budget = _patience(container, "startupProbe")
    if (ready if ready is not None else budget) >= budget:
        ready = None
        end = end if end is not None and end["at"] < budget else {"at": budget, **KILLED}
    elif story.silent_at is not None:
        killed = story.silent_at + _patience(container, "livenessProbe")
        end = end if end is not None and end["at"] < killed else {"at": killed, **KILLED}
        unready = story.silent_at + _patience(container, "readinessProbe")
        if unready < end["at"]:
            times["unready"] = unready
    if ready is not None:
        times["ready"] = ready
        if story.flap:
            times["flap"] = story.flap
    if end is not None:
        times["end"] = end
    return json.dumps(times, sort_keys=True)


def _patience(container: Mapping[str, Any], probe: str) -> float:
    """Seconds of failures until the kubelet acts."""
    found = container.get(probe, {})
    return float(found.get("failureThreshold", 3) * found.get("periodSeconds", 10))
