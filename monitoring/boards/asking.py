"""What a dashboard asks of Prometheus, and what it gets: the queries as Grafana sends them, with All everywhere."""

import json
import math
import re
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from monitoring.boards.row import Board, Panel, Query

ALL = ".*"
STEPS = 240
"""Points of a line at most."""
SCRAPES = 4
"""Of an interval: Grafana's $__rate_interval is at least so many scrapes long."""
SECONDS = 30.0
"""An answer may take."""


class NoPrometheus(Exception):
    """Nothing answers at the address, or something else does; the message says what."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time: its end as Unix time, its length, and the scrape interval of the data source, in seconds."""

    end: float
    length: float
    scrape: float

    @property
    def step(self) -> float:
        """Between two points of a line."""
        return max(self.length / STEPS, 1.0)

    def variables(self, board: Board) -> dict[str, str]:
        """Grafana's variables with All chosen."""
        chosen = {variable.name: ALL for variable in board.variables}
        interval = f"{math.ceil(max(self.step + self.scrape, SCRAPES * self.scrape))}s"
        return {**chosen, "__rate_interval": interval, "__range": f"{math.ceil(self.length)}s"}


@dataclass(frozen=True, slots=True)
class Series:
    """One line: what it is called, its labels, and (Unix time, value) in the order of time; no value is NaN."""

    name: str
    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]
    dashed: bool = False

    @property
    def latest(self) -> float:
        return self.points[-1][1]

    def ended(self, span: Span) -> bool:
        """Whether it has no value at the end of the time shown."""
        return self.points[-1][0] < span.end - 1.5 * span.step

    @property
    def zero(self) -> bool:
        """Throughout."""
        return not any(value for _, value in self.points)


def substituted(expr: str, variables: Mapping[str, str]) -> str:
    """PromQL without Grafana's variables. KeyError for one that the board does not have."""
    return re.sub(r"\$(\w+)", lambda found: variables[found[1]], expr)


def called(query: Query, labels: Mapping[str, str]) -> str:
    """A series' name by the query's legend, or all its labels where it has none."""
    if not query.legend:
        return ", ".join(f"{name}={value}" for name, value in sorted(labels.items()))
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), query.legend).strip()


def answer(prometheus: str, board: Board, panel: Panel, query: Query, span: Span) -> list[Series]:
    """What a query of a panel returns. Series without any value are left out, as Grafana shows none of them."""
    expr = substituted(query.expr, span.variables(board))
    if panel.instant:
        result = _get(prometheus, "query", query=expr, time=str(span.end))
    else:
        start = str(span.end - span.length)
        result = _get(prometheus, "query_range", query=expr, start=start, end=str(span.end), step=str(span.step))
    found = [_series(query, row) for row in result]
    return [one for one in found if one.points]


def marked(prometheus: str, board: Board, span: Span) -> list[tuple[float, str]]:
    """The moments that a board marks, in their order: Unix times within the span, and what happened."""
    found = set()
    for mark in board.marks:
        query = Query(mark.expr, mark.legend)
        expr = substituted(mark.expr, span.variables(board))
        start = str(span.end - span.length)
        result = _get(prometheus, "query_range", query=expr, start=start, end=str(span.end), step=str(span.step))
        found |= {(at, one.name) for one in (_series(query, row) for row in result) for _, at in one.points}
    return sorted((at, name) for at, name in found if span.end - span.length <= at <= span.end)


def _series(query: Query, row: Mapping[str, Any]) -> Series:
    values = row.get("values") or [row["value"]]
    points = tuple((float(at), float(value)) for at, value in values if not math.isnan(float(value)))
    return Series(called(query, row["metric"]), row["metric"], points, query.dashed)


def _get(prometheus: str, verb: str, **words: str) -> list[dict[str, Any]]:
    body = urllib.parse.urlencode(words).encode()
    try:
        request = urllib.request.Request(f"{prometheus.rstrip('/')}/api/v1/{verb}", body)
        with urllib.request.urlopen(request, timeout=SECONDS) as reply:
            result: list[dict[str, Any]] = json.load(reply)["data"]["result"]
    except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
        raise NoPrometheus(f"{prometheus} does not answer as a Prometheus does: {error}") from error
    return result
