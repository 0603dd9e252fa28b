"""A report as one picture: of one row its distributions and its course, of several a comparison.

Ground, ink and colours are those of `bench graphs`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from graphpod_runtime.bench.output.plot import BARS, DPI, INK, STYLE, available, plain_ticks
from graphpod_runtime.bench.output.table import digits
from graphpod_runtime.bench.serve.figures.report import Report, Row
from graphpod_runtime.bench.serve.figures.spread import Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"TTFT": "#1F83C4", "ITL": "#E69F00", "TPOT": "#009E73", "E2E": "#CC79A7"}
WIDTH, HEIGHT = 11.5, 7.0
"""Inches of the picture of one row."""
FARTHEST = 1e3
"""The largest value of a logarithmic axis by its smallest."""
LINE = 0.34
"""Inches of one row among several."""


def draw(report: Report, path: Path) -> None:
    """The picture in `path`, a PNG. NoMatplotlib where it cannot be drawn."""
    available()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    path.parent.mkdir(parents=True, exist_ok=True)
    with pyplot.rc_context(STYLE):
        figure = _row(report.rows[0]) if len(report.rows) == 1 else _rows(report.rows)
        server = report.server
        figure.suptitle(f"{server.model} by {server.version}, {report.date[:10]}", fontsize=12, color=INK)
        figure.savefig(path, dpi=DPI)
        pyplot.close(figure)


def _row(row: Row) -> "Figure":
    from matplotlib import pyplot

    figure, places = pyplot.subplots(2, 2, figsize=(WIDTH, HEIGHT), layout="constrained")
    seen = row.parts[0].seen
    _curves(places[0][0], {"TTFT": seen.ttft, "E2E": seen.e2e})
    _curves(places[0][1], {"ITL": seen.itl, "TPOT": seen.tpot})
    line = seen.timeline
    ends = [line.step * at for at in range(len(line.in_flight))]
    for place, values, title in (
        (places[1][0], line.pieces_per_second, "Pieces of answers a second"),
        (places[1][1], line.in_flight, "Requests in flight"),
    ):
        place.fill_between(ends, values, step="post", color=COLOURS["TTFT"], alpha=0.35, linewidth=0)
        place.step(ends, values, where="post", color=COLOURS["TTFT"], linewidth=1.4)
        place.set_title(title)
        place.set_xlabel("seconds")
        place.set_ylim(bottom=0)
    figure.supxlabel(f"{row.name}: {row.words or 'defaults'}", fontsize=9, color=INK)
    return figure


def _curves(place: "Axes", found: dict[str, Spread | None]) -> None:
    """Share of requests, or of gaps, that took at most so long."""
    for name, one in found.items():
        if one is not None:
            label = f"{name}: p50 {digits(1e3 * one.p50)}, p99 {digits(1e3 * one.p99)} ms"
            place.plot([1e3 * value for value in one.curve], range(len(one.curve)), color=COLOURS[name], label=label)
    place.set_title(" and ".join(found))
    place.set_xlabel("ms (log)")
    place.set_ylabel("% at most")
    if any(one is not None and one.curve[-1] > 0 for one in found.values()):
        _logarithmic(place, [1e3 * value for one in found.values() if one for value in one.curve])
    if place.get_legend_handles_labels()[0]:
        place.legend(loc="upper left")


def _logarithmic(place: "Axes", values: Sequence[float]) -> None:
    """A logarithmic axis over `values`; of those far below the largest, 0 above all, it shows only that there are."""
    place.set_xscale("log")
    place.set_xlim(max(min(values), max(values) / FARTHEST) / 1.2, 1.2 * max(values))
    plain_ticks(place.xaxis)
    place.tick_params(axis="x", labelsize=8)


def _rows(rows: tuple[Row, ...]) -> "Figure":
    from matplotlib import pyplot

    slots = max(BARS, len(rows))
    figure, places = pyplot.subplots(1, 3, figsize=(1.3 * WIDTH, 1.6 + LINE * slots), layout="constrained", sharey=True)
    seen = [row.parts[0].seen for row in rows]
    for at, one in enumerate(seen):
        places[0].barh(at, one.output_tokens_per_second, color=COLOURS["TTFT"], height=0.6)
        _text(places[0], at, one.output_tokens_per_second, digits(one.output_tokens_per_second))
    places[0].set_title("Output")
    places[0].set_xlabel("tokens a second")
    places[0].margins(x=0.2)
    _ranges(places[1], "TTFT", [one.ttft for one in seen])
    _ranges(places[2], "ITL", [one.itl for one in seen])
    places[0].set_yticks(range(len(rows)), [row.name for row in rows])
    places[0].set_ylim(slots - 0.5, -0.5)
    return figure


def _ranges(place: "Axes", name: str, found: Sequence[Spread | None]) -> None:
    """From the least to the 99th percentile of each row, the median marked."""
    place.set_title(name)
    place.set_xlabel("ms (log): least to p99, p50 marked; p50 / p99")
    ends: list[float] = []
    for at, spread in enumerate(found):
        if spread is not None and spread.p99 > 0:
            low, mid, high = (1e3 * value for value in (spread.curve[0], spread.p50, spread.p99))
            low, mid = max(low, high / FARTHEST), max(mid, high / FARTHEST)
            place.plot([low, high], [at, at], color=COLOURS[name], linewidth=6, alpha=0.35, solid_capstyle="butt")
            place.plot([mid], [at], marker="|", markersize=13, markeredgewidth=2.5, color=COLOURS[name])
            _text(place, at, high, f"{digits(mid)} / {digits(high)}")
            ends += [low, high]
    if ends:
        _logarithmic(place, ends)
        place.set_xlim(right=max(ends) * (max(ends) / min(ends)) ** 0.4 * 1.3)


def _text(place: "Axes", at: int, end: float, text: str) -> None:
    place.annotate(text, (end, at), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8.5)
