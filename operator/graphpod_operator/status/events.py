"""Events: one for each transition that a user would want to be told of, none twice within ten minutes, and of one
service no more than a few however often it changes. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphpod_operator.api.names import API_VERSION, KIND
from graphpod_operator.api.status import Condition, Status
from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.message import sentence
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.conditions.row import Notice
from graphpod_operator.conditions.types import ROOTS, ConditionType

QUIET_SECONDS = 600.0
"""The same event of the same object is not repeated within this time."""
BURST, REFILL_SECONDS = 25, 300.0
"""Events of one object at once, and seconds until it may have one more: client-go's limits for any one source."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something to tell about a service."""

    notice: Notice
    reason: str
    message: str


def warning(reason: Reason, what: str) -> Event:
    """What no condition tells."""
    return Event(Notice.Warning, reason.name, sentence(reason, what))


def transitions(before: Mapping[str, Any], after: Status) -> tuple[Event, ...]:
    """The events of going from one status to the next: a condition has a new reason, and the reason has a notice."""
    old = {entry["type"]: entry["reason"] for entry in before.get("conditions") or ()}
    return tuple(
        Event(notice, condition.reason, condition.message)
        for condition in after.conditions
        if old.get(condition.type) != condition.reason and (notice := _notice(condition)) is not None
    )


def _notice(condition: Condition) -> Notice | None:
    """Ready repeats the reason of another condition, except its own."""
    reason = Reason[condition.reason]
    told_here = condition.type in ROOTS or reason.row.types == (ConditionType.Ready,)
    return reason.row.notice if told_here else None


def body(found: Service, event: Event, now: str) -> dict[str, Any]:
    """The core/v1 Event to create; `now` is RFC 3339."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{found.key.name}.", "namespace": found.key.namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": found.key.name,
            "namespace": found.key.namespace,
            "uid": found.uid,
        },
        "type": event.notice.value,
        "reason": event.reason,
        "message": event.message,
        "source": {"component": "graphpod"},
        "reportingComponent": "graphpod.dev/operator",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


class Recent:
    """What was told lately. Times are seconds of any clock that only goes forward."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, int, str], float] = {}
        self._full: dict[str, float] = {}
        """By uid, when its budget will be whole again: all of it, unless that is in the future."""

    def is_new(self, found: Service, event: Event, now: float) -> bool:
        """Whether the event is to be told; if so, it counts as told at `now`.

        The same reason under the same generation is the same event, whichever pod it names. A service that spent its
        budget is told of by its status alone.
        """
        self._told = {mark: told for mark, told in self._told.items() if now - told < QUIET_SECONDS}
        self._full = {uid: full for uid, full in self._full.items() if full > now}
        mark, full = (found.uid, found.generation, event.reason), max(now, self._full.get(found.uid, now))
        if mark in self._told or full + REFILL_SECONDS - now > BURST * REFILL_SECONDS:
            return False
        self._told[mark] = now
        self._full[found.uid] = full + REFILL_SECONDS
        return True
