"""Events: one for each transition that a user wants to know. Pure.

A start has three: its plan (`Planned`; `RolloutStarted` where it replaces another one), `Scheduled` as soon as its pods
exist and have nodes, and `Ready`, with which a rollout ends. They follow from two statuses, of which the first is
stored, so the next operator repeats none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from graphpod_operator.api.names import API_VERSION, KIND
from graphpod_operator.api.status import Condition, ConditionStatus, Status
from graphpod_operator.cache.key import Key
from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.message import sentence
from graphpod_operator.conditions.reason_row import Notice
from graphpod_operator.conditions.reason_table import downloads
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
    """The events of going from one status to the next: pods are made from another rendering, or a condition has a new
    reason, and the reason has a notice.
    """
    old = {entry["type"]: entry["reason"] for entry in before.get("conditions") or ()}
    said = (
        Event(notice, condition.reason, _message(condition, after))
        for condition in after.conditions
        if old.get(condition.type) != condition.reason and (notice := _notice(condition)) is not None
    )
    return (
        *_planned(before.get("revision"), after),
        *sorted(said, key=lambda event: event.reason == Reason.Ready.name),
    )


def _planned(before: str | None, after: Status) -> Iterator[Event]:
    """That the spec has another plan than the revision `before`. A spec that is refused has none: what runs stays. A
    weaker form of a plan is no other plan of the spec: the warning StartsDied reports it.
    """
    reasons = {condition.type: condition.reason for condition in after.conditions}
    accepted = Reason[reasons[ConditionType.Accepted]]
    if after.graph is None or after.revision in (None, before) or accepted.row.status is not ConditionStatus.true:
        return
    if reasons[ConditionType.Degraded] == Reason.StartsDied.name:
        return
    plan = f"prefill {after.graph.prefill.planned}, decode {after.graph.decode.planned}"
    what = f"revision {after.revision} is planned: {plan}"
    if before is None:
        yield Event(Notice.Normal, Reason.Planned.name, what)
    elif accepted is Reason.Paused:
        waits = f"{what}; it replaces revision {before} once the annotation graphpod.dev/paused is removed"
        yield Event(Notice.Normal, Reason.Planned.name, waits)
    elif reasons[ConditionType.ModelAvailable] in downloads.ROWS:
        waits = f"{what}; it replaces revision {before} once its weights are downloaded"
        yield Event(Notice.Normal, Reason.Planned.name, waits)
    else:
        yield Event(Notice.Normal, Reason.RolloutStarted.name, f"{what}; it replaces revision {before}")


def _message(condition: Condition, status: Status) -> str:
    """The condition's; of Ready with what the start has done."""
    graph = status.graph
    if condition.reason != Reason.Ready.name or graph is None:
        return condition.message
    seconds = (graph.prefill.capture_seconds or 0.0) + (graph.decode.capture_seconds or 0.0)
    captured = f": {graph.captured} captured in {seconds:.1f} s" if graph.backend is not None else ""
    return f"revision {status.revision} {condition.message}{captured}"


def _notice(condition: Condition) -> Notice | None:
    """Ready and Scheduled repeat the reasons of other conditions, except their own."""
    reason = Reason[condition.reason]
    own = reason.row.types in ((ConditionType.Ready,), (ConditionType.Scheduled,))
    return reason.row.notice if own or condition.type in (*ROOTS, ConditionType.Asleep) else None


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
