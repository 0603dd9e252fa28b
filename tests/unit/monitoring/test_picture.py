"""The pictures of the dashboards: values as people read them, and nothing cut without a word."""

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib import pyplot as plt

from monitoring.boards import BOARDS
from monitoring.boards.asking import Series, Span
from monitoring.boards.picture import BARS, NAMED, draw, draw_panel, text
from monitoring.boards.row import Kind, Panel, Query, Tone, Unit

SPAN = Span(end=100.0, length=60.0, scrape=15.0)
LINES = Panel("Ratio", "What it is.", Kind.Lines, Unit.Share, (Query("up", "{{pod}}"),))


def series(name: str, *values: float) -> Series:
    return Series(name, {"pod": name}, tuple((100.0 - len(values) + at, value) for at, value in enumerate(values)))


def texts(panel: Panel, *shown: Series) -> str:
    """Everything that a panel writes."""
    figure, axes = plt.subplots()
    draw_panel(axes, panel, list(shown), SPAN)
    figure.canvas.draw()
    words = [one.get_text() for one in figure.findobj(plt.Text)]
    plt.close(figure)
    return "\n".join(words)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(-93.4, "-9,340%"), (1, "100%"), (0, "0%"), (0.247, "24.7%"), (0.00007, "0.007%"), (0.00002, "0.002%")],
)
def test_a_share_is_always_a_percentage(value: float, shown: str) -> None:
    assert text(value, Unit.Share) == shown


def test_a_panel_writes_its_title_its_meaning_and_each_latest_value() -> None:
    written = texts(LINES, series("a", 0.5, 0.25))
    assert {"Ratio", "What it is.", "a: 25%"} <= set(written.split("\n"))


def test_series_that_are_left_out_are_counted() -> None:
    many = [series(f"pod-{number}", float(number)) for number in range(NAMED + BARS)]
    assert f"and {BARS} smaller ones" in texts(LINES, *many)
    assert f"and {NAMED} more, each 800% or less" in texts(replace(LINES, kind=Kind.Bars), *many)


def test_zero_is_seen_and_a_limit_is_named() -> None:
    assert "0 all the time" in texts(LINES, series("a", 0, 0))
    assert "limit 90%" in texts(replace(LINES, steps=((0.9, Tone.Bad),)), series("a", 0.5))


def test_a_word_stands_in_place_of_a_value() -> None:
    assert "no fault  gpu" in texts(replace(LINES, kind=Kind.Number, words=((0, "no fault"),)), series("gpu", 0))


def test_a_board_of_every_kind_is_drawn_without_data_and_with_a_note(tmp_path: Path) -> None:
    board = BOARDS[0]
    file = draw(board, {panel: [] for panel in board.panels()}, SPAN, tmp_path / "x.png", {"Replay": "made up"})
    assert file.read_bytes().startswith(b"\x89PNG")
