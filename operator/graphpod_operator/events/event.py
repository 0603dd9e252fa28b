"""Events: one for each transition that a user wants to know. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphpod_operator.api.names import API_VERSION, KIND
from graphpod_operator.api.status import Condition, Status
from graphpod_operator.cache.key import Key
from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.message import sentence
from graphpod_operator.conditions.reason_row import Notice
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.conditions.types import ROOTS, ConditionType


@dataclass(frozen=True, slots=True)
class Event:
    """Something to report about a service."""

    notice: Notice
    reason: str
    message: str


def warning(reason: Reason, what: str, key: Key) -> Event:
    """What no condition reports of the service `key`."""
    return Event(Notice.Warning, reason.name, sentence(reason, what, key.name, namespace=key.namespace))


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
    reported_here = condition.type in (*ROOTS, ConditionType.Asleep) or reason.row.types == (ConditionType.Ready,)
    return reason.row.notice if reported_here else None


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
