"""How a change of a service's pods is rolled out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphpod_operator.api.lifecycle import RolloutStrategy
from graphpod_operator.api.spec import Spec
from graphpod_operator.intent.resolver_input import wants_gpu


def rolling(spec: Spec) -> dict[str, int]:
    """How many replicas there may be more, and less, meanwhile."""
    default = RolloutStrategy.Replace if wants_gpu(spec) else RolloutStrategy.Surge
    if (spec.rollout.strategy or default) is RolloutStrategy.Replace:
        return {"maxSurge": 0, "maxUnavailable": spec.rollout.max_unavailable or 1}
    return {"maxSurge": 1, "maxUnavailable": 0}


def surges(workload: Mapping[str, Any]) -> bool:
    """Whether the new pods of a workload, given its body, come before the old ones go."""
    return bool(_rows(workload)["maxSurge"])


def most_unavailable(workload: Mapping[str, Any]) -> int:
    """How many replicas of a workload, given its body, may be away meanwhile."""
    return int(_rows(workload)["maxUnavailable"])


def _rows(workload: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = workload["spec"]
    rows: Mapping[str, Any] = (
        spec["strategy"]["rollingUpdate"] if "strategy" in spec else spec["rolloutStrategy"][CONFIGURATION]
    )
    return rows


CONFIGURATION = "rollingUpdateConfiguration"
"""Where a LeaderWorkerSet has it."""
