"""What a written status counts as: a policy that became weaker than planned, and the time until a service is Ready."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphpod_operator.api.status import ConditionStatus
from graphpod_operator.cache.service import Service
from graphpod_operator.cache.service_memory import ServiceMemory
from graphpod_operator.conditions.types import ConditionType
from graphpod_operator.telemetry.metrics import DEGRADATIONS, TIME_TO_READY, ZEROS, Meters

_COUNTED = [tuple(series.values()) for series in ZEROS[DEGRADATIONS]]
"""Phase, planned and effective policy, of which the last is the weaker one."""


def began(found: Service, memory: ServiceMemory, now: float) -> None:
    """A service is looked at; `now` is of a clock that only goes forward. Its time until Ready begins with the first
    look at a generation that no status has seen: after a restart of the operator the time of others is not known.
    """
    if memory.generation != found.generation:
        memory.generation = found.generation
        observed = found.status.get("observedGeneration")  # anything, where a user has written the status
        is_new = not isinstance(observed, int) or observed < found.generation
        memory.generation_seen = now if is_new else None


def written(
    before: Mapping[str, Any], after: Mapping[str, Any], memory: ServiceMemory, meters: Meters, now: float
) -> None:
    """The status `after` has taken the place of `before`."""
    earlier = _policies(before)
    for phase, policies in _policies(after).items():
        if policies != earlier.get(phase) and (phase, *policies) in _COUNTED:
            meters.count(DEGRADATIONS, phase=phase, planned=policies[0], effective=policies[1])
    if memory.generation_seen is not None and _is_ready(after):
        meters.observe(TIME_TO_READY, now - memory.generation_seen)
        memory.generation_seen = None


def _policies(status: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    graph = status.get("graph") or {}
    return {
        phase: (str(said.get("planned") or ""), str(said.get("effective") or ""))
        for phase in ("prefill", "decode")
        if isinstance(said := graph.get(phase), Mapping)
    }


def _is_ready(status: Mapping[str, Any]) -> bool:
    conditions = status.get("conditions") or ()
    return any(row["type"] == ConditionType.Ready and row["status"] == ConditionStatus.true for row in conditions)
