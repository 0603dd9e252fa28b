"""The rows of the table of dashboards. Nothing here knows Grafana."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

COLUMNS = 24
"""Of a row of panels, as in Grafana."""


UNSCRAPED = "Empty only if Prometheus does not scrape what is chosen above."
"""Of a panel whose series exist from the start."""
INTERPOLATED = (
    "Quantiles (p50, p95, p99) are estimates between two bounds of a histogram: of few values they may be above the "
    "largest one, and none is above the last bound. The mean is exact."
)
"""Of a panel with quantiles."""


class Kind(StrEnum):
    """How a panel shows its series."""

    Lines = "lines"
    Stacked = "stacked"
    Number = "number"
    Bars = "bars"
    """One bar a series, its latest value."""
    Table = "table"
    """One row a series: its labels, and no value."""
    Timeline = "timeline"
    """One band a series; its values have words."""


class Unit(StrEnum):
    """Grafana's names of units."""

    Count = "short"
    """Of things: always whole."""
    Number = "none"
    """That need not be whole."""
    PerSecond = "ops"
    RequestsPerSecond = "reqps"
    Share = "percentunit"
    Seconds = "s"
    Bytes = "bytes"
    BytesPerSecond = "Bps"
    TokensPerSecond = "tok/s"
    Tokens = "tok"
    Watts = "watt"


class Tone(StrEnum):
    """Grafana's names of colours that say something."""

    Good = "green"
    Warn = "orange"
    Bad = "red"
    Plain = "blue"
    """Neither good nor bad."""
    Pale = "super-light-blue"
    """Before Plain."""
    Deep = "dark-blue"
    """After Plain."""
    Line = "text"
    """Of what series are held against: the colour of no series."""


LOWEST = -math.inf


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL with Grafana's variables, and how each series is called: `{{label}}`."""

    expr: str
    legend: str
    dashed: bool = False
    """Whether its lines are what others are held against."""


@dataclass(frozen=True, slots=True)
class Level:
    """A dashed line of a panel: from where on something is wrong, or what is aimed at. `word` as in `goal 99%`."""

    value: float
    word: str


ALERT_ABOVE, ALERT_BELOW, GOAL = "alert above", "alert below", "goal"
LOOK_ABOVE, LOOK_BELOW = "too much above", "too little below"
"""No alert is about it."""


@dataclass(frozen=True, slots=True)
class Word:
    """What stands in place of a value, and the colour of that."""

    value: float
    text: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class Panel:
    """`means` says what is shown and what is good; `quiet` why it may show nothing though its pods are scraped."""

    title: str
    means: str
    kind: Kind
    unit: Unit
    queries: tuple[Query, ...]
    quiet: str = ""
    width: int = 8
    """Of COLUMNS."""
    height: int = 8
    tones: tuple[tuple[str, Tone], ...] = ()
    """Colours of series by a regular expression of the whole name; the first that matches counts. Several lines of one
    colour get shades of it."""
    steps: tuple[tuple[float, Tone], ...] = ()
    """Of numbers and bars: from each value on its tone, in ascending order; below the first Plain."""
    levels: tuple[Level, ...] = ()
    """Of lines, in ascending order."""
    words: tuple[Word, ...] = ()
    stepped: bool = False
    """Whether a value holds until the next one: no slopes between them."""

    @property
    def zeros_count(self) -> bool:
        """Whether a series that is 0 throughout says something: series should be above a level."""
        return any(level.word in (GOAL, ALERT_BELOW, LOOK_BELOW) for level in self.levels)

    def named(self, name: str) -> Tone | None:
        """Of a series of this name; None if nothing is said about the name."""
        return next((tone for pattern, tone in self.tones if re.fullmatch(pattern, name)), None)

    def tone(self, name: str, value: float) -> Tone | None:
        """Of a series of this name whose latest value is this; None if nothing is said about it."""
        passed = [tone for start, tone in self.steps if value >= start]
        return self.named(name) or (passed[-1] if passed else None)

    @property
    def description(self) -> str:
        """As Grafana shows it at the panel's title."""
        return " ".join((self.means, *([INTERPOLATED] if self.interpolated else []), self.why_empty))

    @property
    def why_empty(self) -> str:
        """What stands in place of data."""
        return self.quiet or UNSCRAPED

    @property
    def interpolated(self) -> bool:
        """Whether it shows quantiles of histograms."""
        return any("histogram_quantile" in query.expr for query in self.queries)

    @property
    def instant(self) -> bool:
        """Whether only the latest values are shown."""
        return self.kind in (Kind.Number, Kind.Bars, Kind.Table)


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice of label values at the top of a board; `where` is the series and labels they are read from."""

    name: str
    where: str


@dataclass(frozen=True, slots=True)
class Mark:
    """Moments that every line of time is marked with: the values of `expr` are Unix times in seconds."""

    name: str
    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Board:
    """`name`: of its file and ConfigMap; its uid is `graphpod-NAME`."""

    name: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    sections: tuple[Section, ...]
    marks: tuple[Mark, ...]

    def panels(self) -> Iterator[Panel]:
        """Every panel, in the board's order."""
        for section in self.sections:
            yield from section.panels


STAGES = (
    "Import: Python and torch. Load: weights. Buffers: static buffers and workspaces. Compile: torch.compile, if set. "
    "PrefillCapture, DecodeCapture: graphs. DecodeMeasure: decode's graphs for a first time, to learn their memory. "
    "KvSizing: the KV cache in what is left. SelfCheck: graphs against uncaptured code."
)
"""What each stage of a start does, in their order."""
SERVICE = 'namespace=~"$namespace",inferenceservice=~"$inferenceservice",pod=~"$pod"'
"""Selects the pods of the services that a board shows."""
OF_SERVICES = (
    Variable("namespace", "graphpod_build_info, namespace"),
    Variable("inferenceservice", 'graphpod_build_info{namespace=~"$namespace"}, inferenceservice'),
    Variable("pod", 'graphpod_build_info{namespace=~"$namespace",inferenceservice=~"$inferenceservice"}, pod'),
)


def selected(metric: str, more: str = "") -> str:
    """A metric of those pods."""
    return f"{metric}{{{SERVICE}{',' + more if more else ''}}}"


POD_MARKS = (
    Mark(
        "Starts of pods",
        f"max by (namespace, pod) ({selected('process_start_time_seconds')}"
        " and on (job, instance) graphpod_build_info)",
        "start of {{namespace}}/{{pod}}",
    ),
    Mark(
        "Pods get Ready",
        f"max by (namespace, pod) ({selected('graphpod_ready_timestamp_seconds')})",
        "{{namespace}}/{{pod}} is Ready",
    ),
)
"""A rollout, a restart or a new replica: its start, and from when on it serves."""


def rate(metric: str, more: str = "") -> str:
    return f"rate({selected(metric, more)}[$__rate_interval])"


def counted(expr: str, label: str) -> str:
    """Counts above 0, or one of 0 whose `label` is `none`."""
    return f'({expr}) > 0 or label_replace(sum({expr}) == 0, "{label}", "none", "", "")'


def quantiles(
    histogram: str, by: str = "", shown: tuple[float, ...] = (0.5, 0.95, 0.99), whole: bool = False
) -> tuple[Query, ...]:
    """Quantiles over the time of `$__rate_interval`, and the mean. `whole`: of whole numbers, rounded up: else they may
    be below the least that can be.
    """
    groups = f"le, {by}" if by else "le"
    legend = " ".join(f"{{{{{label.strip()}}}}}" for label in by.split(",") if by)
    estimates = {
        share: f"histogram_quantile({share:g}, sum by ({groups}) ({rate(f'{histogram}_bucket')}))" for share in shown
    }
    return (
        *(
            Query(f"ceil({expr})" if whole else expr, f"{legend} p{share * 100:g}".strip())
            for share, expr in estimates.items()
        ),
        Query(mean(histogram, by), f"{legend} mean".strip()),
    )


def mean(histogram: str, by: str = "") -> str:
    """The mean of a histogram's values over the time of `$__rate_interval`."""
    total = f"sum by ({by})" if by else "sum"
    return f"{total} ({rate(f'{histogram}_sum')}) / {total} ({rate(f'{histogram}_count')})"
