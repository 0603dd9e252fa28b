"""A picture of each dashboard with real data, in Grafana's layout: what a person looks at where no Grafana is."""

import time
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from monitoring.boards import BOARDS
from monitoring.boards.asking import Series, Span, answer
from monitoring.boards.row import COLUMNS, Board, Kind, Panel, Unit

WIDTH, ROW_HEIGHT = 17.0, 2.5
"""Inches: of the picture, and of a row of panels."""
NAMED = 8
"""Series in a legend at most, the largest first."""
LABELS = (
    "pod",
    "phase",
    "requested",
    "planned",
    "effective",
    "backend",
    "kernels",
    "version",
    "rule",
    "stage",
    "outcome",
)
"""Columns of a table, where the series have them."""

SUFFIXES = {
    Unit.PerSecond: "/s",
    Unit.RequestsPerSecond: " req/s",
    Unit.TokensPerSecond: " tok/s",
    Unit.Tokens: " tok",
}
"""After a number of so many."""

Data = dict[Panel, list[Series]]


def draw_all(prometheus: str, folder: Path, seconds: float, scrape: float) -> list[Path]:
    """Draw every dashboard of the last `seconds` into `folder`; the files. `scrape`: seconds between two scrapes."""
    folder.mkdir(parents=True, exist_ok=True)
    span = Span(time.time(), seconds, scrape)
    return [draw(board, data(prometheus, board, span), span, folder / f"{board.name}.png") for board in BOARDS]


def data(prometheus: str, board: Board, span: Span) -> Data:
    """What every panel shows."""
    return {
        panel: [series for query in panel.queries for series in answer(prometheus, board, panel, query, span)]
        for panel in board.panels()
    }


def draw(board: Board, shown: Data, span: Span, file: Path) -> Path:
    """One picture."""
    rows = [row for section in board.sections for row in _rows(section.panels)]
    figure = plt.figure(figsize=(WIDTH, ROW_HEIGHT * len(rows) + 0.7), dpi=80, layout="constrained")
    figure.suptitle(board.title, fontsize=15, fontweight="bold")
    # A figure a row: rows of different widths would press each other's panels together.
    for row, strip in zip(rows, figure.subfigures(len(rows), 1, squeeze=False)[:, 0], strict=True):
        column, grid = 0, strip.add_gridspec(1, COLUMNS)
        for panel in row:
            axes = strip.add_subplot(grid[0, column : column + panel.width])
            _panel(axes, panel, shown[panel], span)
            column += panel.width
    figure.savefig(file)
    plt.close(figure)
    return file


def _rows(panels: tuple[Panel, ...]) -> list[list[Panel]]:
    rows: list[list[Panel]] = [[]]
    for panel in panels:
        if sum(one.width for one in rows[-1]) + panel.width > COLUMNS:
            rows.append([])
        rows[-1].append(panel)
    return rows


def _panel(axes: Axes, panel: Panel, series: list[Series], span: Span) -> None:
    axes.set_title(panel.title, fontsize=10, loc="left", fontweight="bold")
    axes.tick_params(labelsize=7)
    if not series:
        axes.set_axis_off()
        axes.text(0.5, 0.5, f"no data\n{panel.quiet}", ha="center", va="center", color="tab:red", fontsize=8)
        return
    _DRAWN[panel.kind](axes, panel, series, span)


def _lines(axes: Axes, panel: Panel, series: list[Series], span: Span) -> None:
    named = _most(series)
    for one in series:
        times = [at - span.end for at, _ in one.points]
        axes.plot(times, [value for _, value in one.points], linewidth=1.2, label=one.name if one in named else None)
    _time_axis(axes, panel, series, span)


def _stacked(axes: Axes, panel: Panel, series: list[Series], span: Span) -> None:
    times = sorted({at for one in series for at, _ in one.points})
    values = [[dict(one.points).get(at, 0.0) for at in times] for one in series]
    named = _most(series)
    labels = [one.name if one in named else "" for one in series]
    axes.stackplot([at - span.end for at in times], values, labels=labels, alpha=0.7)
    _time_axis(axes, panel, series, span)


def _most(series: list[Series]) -> list[Series]:
    """Those that stand in the legend: the largest."""
    return sorted(series, key=lambda one: -max(value for _, value in one.points))[:NAMED]


def _time_axis(axes: Axes, panel: Panel, series: list[Series], span: Span) -> None:
    axes.set_xlim(-span.length, 0)
    values = [value for one in series for _, value in one.points]
    if min(values) >= 0:
        axes.set_ylim(0, axes.get_ylim()[1] * 1.25 if max(values) > 0 else 1)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: text(value, panel.unit)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} s"))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=6, loc="upper left", ncols=2, framealpha=0.6)


def _number(axes: Axes, panel: Panel, series: list[Series], _: Span) -> None:
    axes.set_axis_off()
    lines = [f"{text(one.latest, panel.unit)}  {one.name}" for one in series]
    axes.text(0.5, 0.5, "\n".join(lines), ha="center", va="center", fontsize=11)


def _bars(axes: Axes, panel: Panel, series: list[Series], _: Span) -> None:
    named = _most(series)[::-1]
    axes.barh(range(len(named)), [one.latest for one in named], color="tab:green", alpha=0.5)
    axes.set_xlim(0, max(one.latest for one in named) or 1)
    for number, one in enumerate(named):
        axes.text(0, number, f"  {text(one.latest, panel.unit)}   {one.name}", va="center", fontsize=7)
    axes.xaxis.set_visible(False)
    axes.yaxis.set_visible(False)


def _table(axes: Axes, panel: Panel, series: list[Series], _: Span) -> None:
    axes.set_axis_off()
    columns = [name for name in LABELS if any(name in one.labels for one in series)]
    cells = [[one.labels.get(name, "") for name in columns] for one in series]
    table = axes.table(cells, colLabels=columns, loc="center", cellLoc="left")
    table.auto_set_font_size(False)
    table.set_fontsize(8)


def _timeline(axes: Axes, panel: Panel, series: list[Series], span: Span) -> None:
    for number, one in enumerate(series):
        axes.broken_barh([(at - span.end, span.step) for at, _ in one.points], (number - 0.4, 0.8), alpha=0.5)
        axes.text(-span.length, number, f"  {one.name}", va="center", fontsize=7)
    axes.yaxis.set_visible(False)
    axes.set_xlim(-span.length, 0)


_DRAWN: dict[Kind, Callable[[Axes, Panel, list[Series], Span], None]] = {
    Kind.Lines: _lines,
    Kind.Stacked: _stacked,
    Kind.Number: _number,
    Kind.Bars: _bars,
    Kind.Table: _table,
    Kind.Timeline: _timeline,
}


def text(value: float, unit: Unit) -> str:
    """A value as people read it."""
    if unit is Unit.Share:
        if 0 < abs(value) < 0.01:
            return f"{value:.2g}" if abs(value) < 0.0001 else f"{value:.2%}"
        return f"{value:.0%}" if abs(value) < 10 else f"{value:.3g}×"
    if unit is Unit.Seconds:
        return f"{value * 1000:.3g} ms" if abs(value) < 1 else f"{value:.3g} s"
    if unit is Unit.Bytes:
        return f"{value / 2**30:.4g} GiB" if abs(value) >= 2**30 else f"{value / 2**20:.4g} MiB"
    if unit is Unit.Watts:
        return f"{value:.4g} W"
    return f"{value:.4g}{SUFFIXES.get(unit, '')}"
