"""Objectives of services as series: what `spec.slo` promises, and the histogram's bound that alerts count it by."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, NamedTuple

from prometheus_client.utils import floatToGoString

from graphpod_operator.api import duration
from graphpod_policy.metrics import ITL_SECONDS, TTFT_SECONDS

BOUNDS = {"ttft": TTFT_SECONDS, "itl": ITL_SECONDS}
"""Of each objective: the bounds of its histogram, ascending."""


class Objective(NamedTuple):
    """One promise of a service."""

    objective: str
    bound: str
    """The smallest bound that is not below the promise, as Prometheus writes the label `le`."""
    seconds: float


def objectives(spec: Mapping[str, Any]) -> tuple[Objective, ...]:
    """The objectives of a spec as it is stored; what an older schema let through and is no duration is none."""
    slo = spec.get("slo")
    if not isinstance(slo, Mapping):
        return ()
    found = ((name, _seconds(slo.get(name))) for name in BOUNDS)
    return tuple(Objective(name, _bound(name, value), value) for name, value in found if value is not None)


def _seconds(text: object) -> float | None:
    try:
        return duration.seconds(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _bound(name: str, seconds: float) -> str:
    bounds = (*BOUNDS[name], math.inf)
    bound = bounds[bisect_left(bounds, seconds)]
    return str(floatToGoString(bound))  # type: ignore[no-untyped-call]  # as the client library has it
