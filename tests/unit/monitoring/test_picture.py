"""The pictures of the dashboards: values as people read them, and nothing cut without a word."""

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib import pyplot as plt

from monitoring.boards import BOARDS
from monitoring.boards.asking import Series, Span
from monitoring.boards.drawn_panel import BARS, NAMED, Time, colours, draw_panel, runs
from monitoring.boards.picture import Data, draw
from monitoring.boards.row import Kind, Level, Panel, Query, Tone, Unit, Word
from monitoring.boards.value_text import text

SPAN = Span(end=100.0, length=60.0, scrape=15.0)
LINES = Panel("Ratio", "What it is.", Kind.Lines, Unit.Share, (Query("up", "{{pod}}"),))


def series(name: str, *values: float) -> Series:
    return Series(name, {"pod": name}, tuple((100.0 - len(values) + at, value) for at, value in enumerate(values)))


def texts(panel: Panel, *shown: Series) -> str:
    """Everything that a panel writes."""
    figure, axes = plt.subplots()
    draw_panel(axes, panel, list(shown), Time(SPAN))
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


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 B"), (512, "512 B"), (1536, "1.5 KiB"), (29.75 * 2**20, "29.75 MiB"), (2**40, "1024 GiB")],
)
def test_bytes_have_the_unit_of_their_size(value: float, shown: str) -> None:
    assert text(value, Unit.Bytes) == shown
    assert text(value, Unit.BytesPerSecond) == f"{shown}/s"


def test_a_panel_writes_its_title_its_meaning_and_each_latest_value() -> None:
    written = texts(LINES, series("a", 0.5, 0.25))
    assert {"Ratio", "What it is.", "a: 25%"} <= set(written.split("\n"))


def test_series_that_are_left_out_are_counted() -> None:
    many = [series(f"pod-{number}", float(number)) for number in range(1, NAMED + BARS + 1)]
    assert f"and {BARS} smaller ones" in texts(LINES, *many)
    assert f"and {NAMED} more, each 900% or less" in texts(replace(LINES, kind=Kind.Bars), *many)


def test_zero_is_seen_and_a_limit_is_named() -> None:
    assert "0 all the time" in texts(LINES, series("a", 0, 0))
    figure, axes = plt.subplots()
    draw_panel(axes, replace(LINES, levels=(Level(0.9, "alert below"),)), [series("a", 0.5)], Time(SPAN))
    names = {line.get_label(): line for line in axes.lines}
    assert names.keys() == {"a: 50%", "alert below 90%"}
    assert (names["alert below 90%"].get_color(), names["alert below 90%"].get_linestyle()) == ("black", "--")
    plt.close(figure)


def test_a_zero_below_what_is_aimed_at_is_named() -> None:
    below = replace(LINES, levels=(Level(0.9, "alert below"),))
    assert "a: 0%" in texts(below, series("a", 0, 0))
    assert "a: 0%" not in texts(replace(LINES, levels=(Level(0.9, "alert above"),)), series("a", 0, 0))


def test_a_series_that_has_ended_has_no_value_now() -> None:
    old = Series("old", {}, ((50.0, 0.5), (51.0, 0.25)))
    written = texts(LINES, old, series("new", 0.5, 0.75))
    assert {"old: ended", "new: 75%"} <= set(written.split("\n"))


def test_an_axis_has_one_unit_and_0_has_none() -> None:
    assert [text(value, Unit.Seconds, largest=2) for value in (0, 0.5, 2)] == ["0", "0.5 s", "2 s"]
    assert [text(value, Unit.Bytes, largest=2**21) for value in (0, 2**19)] == ["0", "0.5 MiB"]


def test_counts_have_whole_ticks_and_states_hold_until_the_next() -> None:
    figure, axes = plt.subplots()
    draw_panel(axes, replace(LINES, unit=Unit.Count, stepped=True), [series("a", 0, 1)], Time(SPAN))
    assert all(tick == round(tick) for tick in axes.get_yticks())
    assert axes.lines[0].get_drawstyle() == "steps-post"
    plt.close(figure)


@pytest.mark.parametrize("kind", [Kind.Lines, Kind.Stacked])
def test_a_legend_counts_the_series_that_are_0_and_names_the_others(kind: Kind) -> None:
    written = texts(replace(LINES, kind=kind), series("a", 0.5), series("b", 0), series("c", 0, 0))
    assert "a: 50%" in written
    assert "and 2 that are 0 throughout" in written
    assert "b:" not in written


def test_a_line_is_parted_where_samples_are_missing() -> None:
    gap = Series("a", {}, ((0, 1), (1, 1), (5, 1), (6, 1), (9, 1)))
    assert [[at for at, _ in run] for run in runs(gap, 1.0)] == [[0, 1], [5, 6], [9]]
    figure, axes = plt.subplots()
    draw_panel(axes, LINES, [gap], Time(SPAN))
    assert [len(line.get_xdata()) for line in axes.lines] == [2, 2, 1]
    plt.close(figure)


def test_series_of_one_tone_have_different_colours_and_so_have_all_others() -> None:
    toned = replace(LINES, tones=(("stop|length", Tone.Good),))
    names = ("stop", "length", "a", "b", "c")
    assert len({str(colour) for colour in colours(toned, [series(name, 1) for name in names])}) == len(names)
    many = [series(str(number), 1) for number in range(NAMED)]
    assert len(set(colours(LINES, many))) == NAMED


def test_a_moment_is_marked_in_every_line_of_time_and_named_once(tmp_path: Path) -> None:
    figure, axes = plt.subplots()
    draw_panel(axes, LINES, [series("a", 1)], Time(SPAN, [(70.0, "start of x")]))
    assert list(axes.lines[-1].get_xdata()) == [-30, -30]
    assert [one.get_text() for one in axes.texts if one.get_text() == "a"] == ["a"]
    assert Time(SPAN, [(70.0, "start of x"), (80.0, "x is Ready")]).lettered() == [
        ("a", 70.0, "start of x"),
        ("b", 80.0, "x is Ready"),
    ]
    near = Time(SPAN, [(70.0, "x"), (70.5, "y"), (80.0, "z")])
    assert near.together() == [("ab", [70.0, 70.5]), ("c", [80.0])]
    plt.close(figure)


def test_a_table_has_a_row_for_each_series_and_no_two_words_in_one_place() -> None:
    figure, axes = plt.subplots()
    draw_panel(axes, replace(LINES, kind=Kind.Table), [series("pod-1", 1), series("pod-2", 1)], Time(SPAN))
    cells = [one for one in axes.texts if one.get_text().startswith("pod")]
    assert [one.get_text() for one in cells] == ["pod", "pod-1", "pod-2"]
    assert len({one.xyann for one in cells}) == len(cells)
    plt.close(figure)


def test_a_band_has_a_colour_for_each_state() -> None:
    words = (Word(1, "Loading", Tone.Pale), Word(2, "Ready", Tone.Good), Word(3, "Failed", Tone.Bad))
    written = texts(replace(LINES, kind=Kind.Timeline, words=words), series("pod-1", 1, 2, 2))
    assert {" pod-1", "Loading", "Ready"} <= set(written.split("\n"))
    assert "Failed" not in written


def test_a_word_stands_in_place_of_a_value() -> None:
    assert "no fault  gpu" in texts(
        replace(LINES, kind=Kind.Number, words=(Word(0, "no fault", Tone.Good),)), series("gpu", 0)
    )


def test_a_board_of_every_kind_is_drawn_without_data_and_with_a_note(tmp_path: Path) -> None:
    board = BOARDS[0]
    file = draw(board, Data({panel: [] for panel in board.panels()}), SPAN, tmp_path / "x.png", {"Replay": "made up"})
    assert file.read_bytes().startswith(b"\x89PNG")
