"""Exemplars: for each bucket of a histogram the latest request in it, so that a slow one can be found by its id.

Ids are ours, or have one fixed form: what a client sends cannot make an exemplar longer than OpenMetrics allows (128
characters).
"""

import re
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from prometheus_client.samples import Exemplar

TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
"""W3C Trace Context: version, trace id, parent id, flags."""
NO_TRACE = "0" * 32


def names_of(id: str, traceparent: str | None) -> dict[str, str]:
    """The labels of an exemplar: the answer's `id`, and the trace of a valid `traceparent` header."""
    found = TRACEPARENT.fullmatch(traceparent or "")
    traced = found is not None and found[1] != NO_TRACE
    return {"request_id": id, **({"trace_id": found[1]} if found is not None and traced else {})}


class Exemplars:
    """Of one histogram, whose upper bounds are `bounds`: one for each bucket, the last one above all bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.latest: list[Exemplar | None] = [None] * (len(bounds) + 1)

    def keep(self, value: float, names: Mapping[str, str]) -> None:
        """`value` was observed for a request of these `names`, if it has any."""
        if names:
            self.latest[bisect_left(self._bounds, value)] = Exemplar(dict(names), value, time.time())
