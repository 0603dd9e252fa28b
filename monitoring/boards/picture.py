"""A picture of each dashboard with real data, in Grafana's layout: what a person looks at where no Grafana is."""

import math
import textwrap
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

from monitoring.boards import BOARDS
from monitoring.boards.asking import Series, Span, answer
from monitoring.boards.row import COLUMNS, Board, Kind, Panel, Section, Tone, Unit

WIDTH, ROW_HEIGHT, TITLE_HEIGHT = 17.0, 3.0, 0.4
"""Inches: of the picture, of a row of panels, and of the title of a section."""
NAMED = 8
"""Series in a legend at most, the largest first."""
BARS = 16
"""Of a panel at most, the largest first."""
LETTERS = 11.5
"""Of a line of text for each column that a panel is wide."""
COLOURS = {Tone.Good: "tab:green", Tone.Warn: "tab:orange", Tone.Bad: "tab:red", Tone.Plain: "tab:blue"}
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
    "page_size",
    "pages",
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


def draw(board: Board, shown: Data, span: Span, file: Path, notes: Mapping[str, str] | None = None) -> Path:
    """One picture. `notes`: what a reader has to know about the data of a section, by its title."""
    strips: list[Section | list[Panel]] = []
    for section in board.sections:
        strips += [section, *_rows(section.panels)]
    heights = [TITLE_HEIGHT if isinstance(strip, Section) else ROW_HEIGHT for strip in strips]
    figure = plt.figure(figsize=(WIDTH, sum(heights) + 0.7), dpi=80, layout="constrained")
    figure.suptitle(board.title, fontsize=15, fontweight="bold")
    # A figure a row: rows of different widths would press each other's panels together.
    places = figure.subfigures(len(strips), 1, squeeze=False, height_ratios=heights)[:, 0]
    for strip, place in zip(strips, places, strict=True):
        if isinstance(strip, Section):
            _section(place, strip.title, (notes or {}).get(strip.title, ""))
            continue
        column, grid = 0, place.add_gridspec(1, COLUMNS)
        for panel in strip:
            axes = place.add_subplot(grid[0, column : column + panel.width])
            draw_panel(axes, panel, shown[panel], span)
            column += panel.width
    figure.savefig(file)
    plt.close(figure)
    return file


def _section(place: SubFigure, title: str, note: str) -> None:
    place.set_facecolor("0.93")
    place.text(0.005, 0.5, title, va="center", fontsize=12, fontweight="bold")
    place.text(0.995, 0.5, note, va="center", ha="right", fontsize=10, color="tab:red")


def _rows(panels: tuple[Panel, ...]) -> list[list[Panel]]:
    rows: list[list[Panel]] = [[]]
    for panel in panels:
        if sum(one.width for one in rows[-1]) + panel.width > COLUMNS:
            rows.append([])
        rows[-1].append(panel)
    return rows


def draw_panel(axes: Axes, panel: Panel, series: list[Series], span: Span) -> None:
    """One panel, with its meaning in full: a picture has no tooltip."""
    lines = textwrap.wrap(panel.means, int(panel.width * LETTERS))
    axes.set_title("\n".join(lines), fontsize=7, loc="left", color="0.3")
    above = (0, 6 + 9.4 * len(lines))
    axes.annotate(
        panel.title,
        (0, 1),
        above,
        "axes fraction",
        "offset points",
        fontsize=10,
        fontweight="bold",
        annotation_clip=False,
    )
    axes.tick_params(labelsize=7)
    if not series:
        axes.set_axis_off()
        axes.text(0.5, 0.5, f"no data\n{panel.quiet}", ha="center", va="center", color="tab:red", fontsize=8)
        return
    _DRAWN[panel.kind](axes, panel, series, span)


def _lines(axes: Axes, panel: Panel, series: list[Series], span: Span) -> None:
    for one, label in zip(series, _labels(panel, series), strict=True):
        times = [at - span.end for at, _ in one.points]
        values = [value for _, value in one.points]
        axes.plot(times, values, linewidth=1.2, label=label, color=_colour(panel, one))
    for start, tone in panel.steps:
        axes.axhline(start, color=COLOURS[tone], linestyle="--", linewidth=1, label=f"limit {text(start, panel.unit)}")
    _time_axis(axes, panel, series, span)


def _stacked(axes: Axes, panel: Panel, series: list[Series], span: Span) -> None:
    times = sorted({at for one in series for at, _ in one.points})
    points = [dict(one.points) for one in series]
    values = [[mine.get(at, 0.0) for at in times] for mine in points]
    labels = [label or "" for label in _labels(panel, series)]
    areas = axes.stackplot([at - span.end for at in times], values, labels=labels, alpha=0.7)
    for one, area in zip(series, areas, strict=True):
        if colour := _colour(panel, one):
            area.set_facecolor(colour)
    _time_axis(axes, panel, series, span)


def _colour(panel: Panel, one: Series) -> str | None:
    """By the name alone: a line has its limits as lines."""
    tone = panel.tone(one.name, -math.inf)
    return COLOURS[tone] if tone else None


def _most(series: list[Series], number: int) -> list[Series]:
    """The largest."""
    return sorted(series, key=lambda one: -max(value for _, value in one.points))[:number]


def _labels(panel: Panel, series: list[Series]) -> list[str | None]:
    """What stands in the legend for each: the name and the latest value, of the largest series."""
    named = _most(series, NAMED)
    return [f"{one.name}: {text(one.latest, panel.unit)}" if one in named else None for one in series]


def _time_axis(axes: Axes, panel: Panel, series: list[Series], span: Span) -> None:
    axes.set_xlim(-span.length, 0)
    values = [value for one in series for _, value in one.points]
    if min(values) >= 0:
        top = axes.get_ylim()[1] * 1.05 if max(values) > 0 or panel.steps else 1.0
        if panel.unit is Unit.Share and 0.6 < max(values) <= 1:
            top = 1.05
        axes.set_ylim(-0.03 * top, top)  # a line at 0 is seen
        if panel.unit is Unit.Bytes:
            axes.yaxis.set_major_locator(MultipleLocator(2.0 ** math.ceil(math.log2(top / 6))))
    if not any(values):
        axes.text(0.5, 0.5, "0 all the time", transform=axes.transAxes, ha="center", color="0.4", fontsize=9)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: text(value, panel.unit)))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} s"))
    axes.grid(alpha=0.3)
    left = len(series) - NAMED
    title = f"and {left} smaller ones; each with its latest value" if left > 0 else None
    columns = max(1, panel.width // 4)
    axes.legend(
        fontsize=6.5, title=title, title_fontsize=6.5, loc="upper left", bbox_to_anchor=(0, -0.09), ncols=columns,
        frameon=False, alignment="left", borderaxespad=0.2,
    )  # fmt: skip


def _number(axes: Axes, panel: Panel, series: list[Series], _: Span) -> None:
    axes.set_axis_off()
    words = dict(panel.words)
    for number, one in enumerate(series):
        tone = panel.tone(one.name, one.latest)
        shown = f"{words.get(one.latest, text(one.latest, panel.unit))}  {one.name}"
        height = 0.5 - 0.14 * (number - (len(series) - 1) / 2)
        axes.text(0.5, height, shown, ha="center", va="center", fontsize=11, color=COLOURS[tone] if tone else "black")


def _bars(axes: Axes, panel: Panel, series: list[Series], _: Span) -> None:
    named = _most(series, BARS)[::-1]
    tones = [panel.tone(one.name, one.latest) or Tone.Plain for one in named]
    axes.barh(range(len(named)), [one.latest for one in named], color=[COLOURS[tone] for tone in tones], alpha=0.4)
    axes.set_xlim(0, max(one.latest for one in named) or 1)
    axes.set_ylim(min(0, len(named) - 3) - 0.6, len(named) - 0.4)
    for number, one in enumerate(named):
        axes.text(0, number, f"  {text(one.latest, panel.unit)}   {one.name}", va="center", fontsize=7)
    if left := len(series) - len(named):
        axes.set_xlabel(f"and {left} more, each {text(named[0].latest, panel.unit)} or less", fontsize=7, loc="left")
    axes.xaxis.set_ticks([])
    axes.yaxis.set_visible(False)


def _table(axes: Axes, panel: Panel, series: list[Series], _: Span) -> None:
    axes.set_axis_off()
    columns = [name for name in LABELS if any(name in one.labels for one in series)]
    cells = [[one.labels.get(name, "") for name in columns] for one in series]
    letters = [max(map(len, column)) + 2 for column in zip(columns, *cells, strict=True)]
    widths = [count / sum(letters) for count in letters]
    table = axes.table(cells, colLabels=columns, colWidths=widths, loc="upper left", cellLoc="left")
    table.auto_set_font_size(False)
    table.set_fontsize(8)


def _timeline(axes: Axes, panel: Panel, series: list[Series], span: Span) -> None:
    for number, one in enumerate(series):
        stretches = [(at - span.end, span.step) for at, _ in one.points]
        axes.broken_barh(stretches, (number - 0.4, 0.8), alpha=0.4, linewidth=0, color=_colour(panel, one))
        axes.text(-span.length, number, f"  {one.name}", va="center", fontsize=7)
    axes.yaxis.set_visible(False)
    axes.set_ylim(min(0, len(series) - 3) - 0.6, len(series) - 0.4)
    axes.set_xlim(-span.length, 0)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} s"))


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
        return f"{value:,.0%}" if value == 0 or abs(value) >= 1 else f"{_plain(value * 100)}%"
    if unit is Unit.Seconds:
        return f"{value * 1000:.3g} ms" if abs(value) < 1 else f"{value:.3g} s"
    if unit is Unit.Bytes:
        return f"{value / 2**30:.4g} GiB" if abs(value) >= 2**30 else f"{value / 2**20:.4g} MiB"
    if unit is Unit.Watts:
        return f"{value:.4g} W"
    return f"{value:.4g}{SUFFIXES.get(unit, '')}"


def _plain(value: float) -> str:
    """Three digits, and no exponent."""
    return f"{float(f'{value:.3g}'):.12f}".rstrip("0").rstrip(".")
