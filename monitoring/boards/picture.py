"""A picture of each dashboard with real data, in Grafana's layout: what a person looks at where no Grafana is."""

import textwrap
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.figure import SubFigure

from monitoring.boards import BOARDS
from monitoring.boards.asking import Series, Span, answer, marked
from monitoring.boards.drawn_panel import BIG, INCHES, LETTERS, LINE, SMALL, Marks, Time, draw_panel, height
from monitoring.boards.row import COLUMNS, INTERPOLATED, Board, Panel, Section

TITLE_HEIGHT = 0.4
"""Inches of the title of a section."""
DOTS = 100
"""An inch."""


@dataclass(frozen=True, slots=True)
class Data:
    """What every panel of a board shows, and the moments that its lines of time are marked with."""

    panels: Mapping[Panel, list[Series]]
    marks: Marks = ()


def draw_all(prometheus: str, folder: Path, seconds: float, scrape: float) -> list[Path]:
    """Draw every dashboard of the last `seconds` into `folder`; the files. `scrape`: seconds between two scrapes."""
    folder.mkdir(parents=True, exist_ok=True)
    span = Span(time.time(), seconds, scrape)
    return [draw(board, data(prometheus, board, span), span, folder / f"{board.name}.png") for board in BOARDS]


def data(prometheus: str, board: Board, span: Span) -> Data:
    """Ask for all of it."""
    panels = {
        panel: [series for query in panel.queries for series in answer(prometheus, board, panel, query, span)]
        for panel in board.panels()
    }
    return Data(panels, marked(prometheus, board, span))


def draw(board: Board, shown: Data, span: Span, file: Path, notes: Mapping[str, str] | None = None) -> Path:
    """One picture. `notes`: what a reader has to know about the data of a section, by its title."""
    time = Time(span, shown.marks)
    strips: list[Section | list[Panel]] = []
    for section in board.sections:
        strips += [section, *_rows(section.panels)]
    head = _head(board, time)
    heights = [
        TITLE_HEIGHT + LINE * len(head),
        *(
            TITLE_HEIGHT if isinstance(strip, Section) else max(height(panel, shown.panels[panel]) for panel in strip)
            for strip in strips
        ),
    ]
    figure = plt.figure(figsize=(COLUMNS * INCHES, sum(heights)), dpi=DOTS, layout="constrained")
    # A figure a row: rows of different widths would press each other's panels together.
    first, *places = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    first.text(0.5, 1 - 0.2 / heights[0], board.title, va="center", ha="center", fontsize=15, fontweight="bold")
    first.text(0.005, 0, "\n".join(head), va="bottom", fontsize=SMALL, color="0.3")
    for strip, place in zip(strips, places, strict=True):
        if isinstance(strip, Section):
            _section(place, strip.title, (notes or {}).get(strip.title, ""))
            continue
        column, grid = 0, place.add_gridspec(1, COLUMNS)
        for panel in strip:
            axes = place.add_subplot(grid[0, column : column + panel.width])
            draw_panel(axes, panel, shown.panels[panel], time)
            column += panel.width
    figure.savefig(file)
    plt.close(figure)
    return file


def _head(board: Board, time: Time) -> list[str]:
    """Lines of text about the whole board."""
    marks = "; ".join(f"{letter}: {what} ({time.at(moment):.0f} s)" for letter, moment, what in time.lettered())
    said = [f"Dotted lines: {marks}."] if marks else []
    said += [INTERPOLATED] if any(panel.interpolated for panel in board.panels()) else []
    return [line for one in said for line in textwrap.wrap(one, int(COLUMNS * LETTERS))]


def _section(place: SubFigure, title: str, note: str) -> None:
    place.set_facecolor("0.93")
    place.text(0.005, 0.5, title, va="center", fontsize=12, fontweight="bold")
    place.text(0.995, 0.5, note, va="center", ha="right", fontsize=BIG, color="tab:red")


def _rows(panels: tuple[Panel, ...]) -> list[list[Panel]]:
    rows: list[list[Panel]] = [[]]
    for panel in panels:
        if sum(one.width for one in rows[-1]) + panel.width > COLUMNS:
            rows.append([])
        rows[-1].append(panel)
    return rows
