"""One panel of a picture: its text, its series, and how much room they take."""

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

from monitoring.boards.asking import Series, Span
from monitoring.boards.row import Kind, Panel, Tone, Unit
from monitoring.boards.value_text import text

INCHES = 0.7
"""Of a column of a board."""
NAMED = 8
"""Series in a legend at most, the largest first."""
BARS = 16
"""Of a panel at most, the largest first."""
BIG, SMALL = 10.0, 8.0
"""Points of titles and of all other text: small text is 11 pixels high."""
LETTERS = 9.6
"""Of small text for each column that a panel is wide."""
LINE, CELL = 0.16, 0.2
"""Inches of a line of small text, and of a row of a table."""
COLOURS = {
    Tone.Good: "tab:green",
    Tone.Warn: "tab:orange",
    Tone.Bad: "tab:red",
    Tone.Plain: "tab:blue",
    Tone.Pale: "#9ecae1",
    Tone.Deep: "#08519c",
    Tone.Line: "black",
}
PALETTE = (
    *("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown", "tab:pink", "tab:olive", "tab:cyan"),
    *("navy", "gold", "lime", "darkred", "magenta", "teal", "slateblue"),
)
"""Of series about which nothing is said, each a colour of its own."""
ZERO = "0.6"
"""The colour of a series that is 0 throughout: no legend names it."""
LABELS = (
    "pod",
    "phase",
    "requested",
    "planned",
    "effective",
    "backend",
    "kernels",
    "form",
    "version",
    "rule",
    "stage",
    "outcome",
    "page_size",
    "pages",
)
"""Columns of a table, where the series have them."""

NEAR = 0.02
"""Of the time shown: letters of marks have no room nearer to one another."""
Marks = Sequence[tuple[float, str]]
"""Unix times, and what happened."""


@dataclass(frozen=True, slots=True)
class Time:
    """The axis of time, and the moments that are marked on it."""

    span: Span
    marks: Marks = ()

    def at(self, moment: float) -> float:
        """Seconds before the end, below 0."""
        return moment - self.span.end

    def lettered(self) -> list[tuple[str, float, str]]:
        """The marks with a letter each, in their order: what stands at their lines, and what that means."""
        return [(chr(ord("a") + place % 26), moment, what) for place, (moment, what) in enumerate(self.marks)]

    def together(self) -> list[tuple[str, list[float]]]:
        """The letters and moments of marks, those that are too near one another for a letter each in one."""
        found: list[tuple[str, list[float]]] = []
        for letter, moment, _ in self.lettered():
            if found and moment - found[-1][1][-1] < NEAR * self.span.length:
                found[-1] = (found[-1][0] + letter, [*found[-1][1], moment])
            else:
                found.append((letter, [moment]))
        return found


def height(panel: Panel, series: list[Series]) -> float:
    """Inches that a panel needs."""
    head = 0.35 + LINE * len(_meaning(panel))
    if not series:
        return head + 0.8
    return (
        head
        + {
            Kind.Lines: 2.2 + LINE * _legend_lines(panel, series),
            Kind.Stacked: 2.2 + LINE * _legend_lines(panel, series),
            Kind.Number: 0.3 + 0.28 * len(series),
            Kind.Bars: 0.4 + 0.24 * min(max(len(series), 3), BARS),
            Kind.Table: 0.2 + CELL * (1 + len(series)),
            Kind.Timeline: 0.6 + 0.4 * max(len(series), 2) + 2 * LINE,
        }[panel.kind]
    )


def draw_panel(axes: Axes, panel: Panel, series: list[Series], time: Time) -> None:
    """One panel, with its meaning in full: a picture has no tooltip."""
    lines = _meaning(panel)
    letters = SMALL if time.marks and not panel.instant else 0  # of marks, above the axes
    axes.set_title("\n".join(lines), fontsize=SMALL, loc="left", color="0.3", pad=6 + letters)
    above = (0, 6 + letters + 72 * LINE * len(lines))
    axes.annotate(
        panel.title,
        (0, 1),
        above,
        "axes fraction",
        "offset points",
        fontsize=BIG,
        fontweight="bold",
        annotation_clip=False,
    )
    axes.tick_params(labelsize=SMALL)
    if not series:
        axes.set_axis_off()
        why = textwrap.fill(f"no data: {panel.why_empty}", int(panel.width * LETTERS))
        axes.text(0.5, 0.5, why, ha="center", va="center", color="tab:red", fontsize=SMALL)
        return
    _DRAWN[panel.kind](axes, panel, series, time)


def _meaning(panel: Panel) -> list[str]:
    return textwrap.wrap(panel.means, int(panel.width * LETTERS))


def runs(one: Series, step: float) -> list[list[tuple[float, float]]]:
    """The points of a line, parted where samples are missing."""
    found: list[list[tuple[float, float]]] = []
    for point in one.points:
        if not found or point[0] - found[-1][-1][0] > 1.5 * step:
            found.append([])
        found[-1].append(point)
    return found


def _lines(axes: Axes, panel: Panel, series: list[Series], time: Time) -> None:
    for one, label, colour in zip(series, _labels(panel, series, time), colours(panel, series), strict=True):
        for number, run in enumerate(runs(one, time.span.step)):
            axes.plot(
                [time.at(at) for at, _ in run],
                [value for _, value in run],
                "." if len(run) == 1 else "--" if one.dashed else "-",
                linewidth=1.3,
                label=label if number == 0 else None,
                color=colour,
                drawstyle="steps-post" if panel.stepped else "default",
            )
    for level, style in zip(panel.levels, ("--", "-."), strict=False):
        label = f"{level.word} {text(level.value, panel.unit)}"
        axes.axhline(level.value, color=COLOURS[Tone.Line], linestyle=style, linewidth=1.1, label=label)
    _axes_of_time(axes, panel, series, time)


def _stacked(axes: Axes, panel: Panel, series: list[Series], time: Time) -> None:
    points = [dict(one.points) for one in series]
    times: list[float] = []
    for at in sorted({at for mine in points for at in mine}):
        if times and at - times[-1] > 1.5 * time.span.step:
            times.append(times[-1] + time.span.step)  # no series has a sample: the areas end
        times.append(at)
    known = {at for mine in points for at in mine}
    values = [[mine.get(at, 0.0) if at in known else math.nan for at in times] for mine in points]
    labels = [label or "" for label in _labels(panel, series, time)]
    axes.stackplot([time.at(at) for at in times], values, labels=labels, alpha=0.75, colors=colours(panel, series))
    _axes_of_time(axes, panel, series, time)


def colours(panel: Panel, series: list[Series]) -> list[str | tuple[float, ...]]:
    """A colour for each. By the name alone, as a line has its limits as lines; of one tone there are shades."""
    tones = [None if _silent(panel, one) else Tone.Line if one.dashed else panel.named(one.name) for one in series]
    taken = {COLOURS[tone] for tone in tones if tone}
    free = [colour for colour in PALETTE if colour not in taken]
    seen: dict[Tone | None, int] = {}
    found: list[str | tuple[float, ...]] = []
    for one, tone in zip(series, tones, strict=True):
        place = seen[tone] = seen.get(tone, -1) + (not _silent(panel, one))
        if _silent(panel, one):
            found.append(ZERO)
        elif tone:
            found.append(_shade(COLOURS[tone], place / max(tones.count(tone) - 1, 1)))
        else:
            found.append(free[place % len(free)])
    return found


def _shade(colour: str, pale: float) -> tuple[float, ...]:
    """The colour at 0, and half of it at 1."""
    return tuple(part + (1 - part) * 0.6 * pale for part in to_rgb(colour))


def _most(series: list[Series], number: int) -> list[Series]:
    """The largest."""
    return sorted(series, key=lambda one: -max(value for _, value in one.points))[:number]


def _labels(panel: Panel, series: list[Series], time: Time) -> list[str | None]:
    """What stands in the legend for each: the name and the value at the end, of the largest series that are not 0."""
    named = _most([one for one in series if not _silent(panel, one)], NAMED)
    now = ["ended" if one.ended(time.span) else text(one.latest, panel.unit) for one in series]
    return [f"{one.name}: {value}" if one in named else None for one, value in zip(series, now, strict=True)]


def _silent(panel: Panel, one: Series) -> bool:
    """Whether the legend leaves it out, as it is 0 throughout."""
    return one.zero and not panel.zeros_count


def _left_out(panel: Panel, series: list[Series]) -> str | None:
    """What the legend says of series that it does not name."""
    zero = sum(_silent(panel, one) for one in series)
    more = len(series) - zero - NAMED
    said = [f"{more} smaller ones"] if more > 0 else []
    said += [f"{zero} that {'is' if zero == 1 else 'are'} 0 throughout"] if 0 < zero < len(series) else []
    return f"and {' and '.join(said)}" if said else None


def _columns(panel: Panel, labels: Iterable[str]) -> int:
    """Of a legend: so many labels have room side by side."""
    return max(1, int((panel.width - 1) * LETTERS / max((len(label) + 6 for label in labels), default=20)))


def _legend_lines(panel: Panel, series: list[Series]) -> int:
    named = _most([one for one in series if not _silent(panel, one)], NAMED)
    values = (f"{one.name}: {text(one.latest, panel.unit)}" for one in named)
    labels = [*values, *(f"{level.word} {text(level.value, panel.unit)}" for level in panel.levels)]
    return math.ceil(len(labels) / _columns(panel, labels)) + (_left_out(panel, series) is not None)


def _axes_of_time(axes: Axes, panel: Panel, series: list[Series], time: Time) -> None:
    values = [value for one in series for _, value in one.points]
    top = axes.get_ylim()[1]
    if min(values) >= 0:
        top = top * 1.05 if max(values) > 0 or panel.levels else 1.0
        if panel.unit is Unit.Share and 0.6 < max(values) <= 1:
            top = 1.05
        axes.set_ylim(-0.03 * top, top)  # a line at 0 is seen
        if panel.unit in (Unit.Bytes, Unit.BytesPerSecond):
            axes.yaxis.set_major_locator(MultipleLocator(2.0 ** math.ceil(math.log2(top / 6))))
        elif panel.unit is Unit.Count:
            axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    if not any(values):
        axes.text(0.5, 0.5, "0 all the time", transform=axes.transAxes, ha="center", color="0.4", fontsize=BIG)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: text(value, panel.unit, largest=top)))
    axes.grid(alpha=0.3)
    _time_axis(axes, time)
    if labels := axes.get_legend_handles_labels()[1]:
        _legend(axes, _columns(panel, labels), _left_out(panel, series))


def _legend(axes: Axes, columns: int, title: str | None = None) -> None:
    axes.legend(
        fontsize=SMALL, title=title, title_fontsize=SMALL, loc="upper left", bbox_to_anchor=(0, -0.11), ncols=columns,
        frameon=False, alignment="left", borderaxespad=0.2, handlelength=1.6, columnspacing=1.2, labelspacing=0.25,
    )  # fmt: skip


def _time_axis(axes: Axes, time: Time) -> None:
    axes.set_xlim(-time.span.length, 0)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} s" if value else "now"))
    for letters, moments in time.together():
        for moment in moments:
            axes.axvline(time.at(moment), color="0.2", linestyle=":", linewidth=1.2)
        axes.annotate(
            letters,
            (time.at((moments[0] + moments[-1]) / 2), 1),
            (0, 1),
            ("data", "axes fraction"),
            "offset points",
            ha="center",
            fontsize=SMALL - 1,
            annotation_clip=False,
        )


def _number(axes: Axes, panel: Panel, series: list[Series], _: Time) -> None:
    axes.set_axis_off()
    words = {word.value: word.text for word in panel.words}
    for number, one in enumerate(series):
        tone = panel.tone(one.name, one.latest)
        shown = f"{words.get(one.latest, text(one.latest, panel.unit))}  {one.name}"
        place = 1 - (number + 0.5) / len(series)
        axes.text(0.5, place, shown, ha="center", va="center", fontsize=BIG, color=COLOURS[tone] if tone else "black")


def _bars(axes: Axes, panel: Panel, series: list[Series], _: Time) -> None:
    named = _most(series, BARS)[::-1]
    tones = [panel.tone(one.name, one.latest) or Tone.Plain for one in named]
    axes.barh(range(len(named)), [one.latest for one in named], color=[COLOURS[tone] for tone in tones], alpha=0.4)
    axes.set_xlim(0, max(one.latest for one in named) or 1)
    axes.set_ylim(min(0, len(named) - 3) - 0.6, len(named) - 0.4)
    for number, one in enumerate(named):
        axes.text(0, number, f"  {text(one.latest, panel.unit)}   {one.name}", va="center", fontsize=SMALL)
    if left := len(series) - len(named):
        axes.set_xlabel(
            f"and {left} more, each {text(named[0].latest, panel.unit)} or less", fontsize=SMALL, loc="left"
        )
    axes.xaxis.set_ticks([])
    axes.yaxis.set_visible(False)


def _table(axes: Axes, _panel: Panel, series: list[Series], _time: Time) -> None:
    axes.set_axis_off()
    columns = [name for name in LABELS if any(name in one.labels for one in series)]
    cells = [[one.labels.get(name, "") for name in columns] for one in series]
    letters = [max(map(len, column)) + 2 for column in zip(columns, *cells, strict=True)]
    for row, words in enumerate([columns, *cells]):
        below = (0, -72 * CELL * (row + 0.7))
        for column, word in enumerate(words):
            left = (sum(letters[:column]) / sum(letters), 1)
            weight = "normal" if row else "bold"
            axes.annotate(word, left, below, "axes fraction", "offset points", fontsize=SMALL, fontweight=weight)


def _timeline(axes: Axes, panel: Panel, series: list[Series], time: Time) -> None:
    """The first pod on top. Each state has its colour in all bands."""
    ordered = sorted(series, key=lambda one: one.points[0][0], reverse=True)
    for number, one in enumerate(ordered):
        for word in panel.words:
            stretches = [(time.at(at), time.span.step) for at, value in one.points if value == word.value]
            axes.broken_barh(stretches, (number - 0.45, 0.45), alpha=0.6, linewidth=0, color=COLOURS[word.tone])
        axes.text(-time.span.length, number + 0.25, f" {one.name}", va="center", fontsize=SMALL)
    axes.yaxis.set_visible(False)
    axes.set_ylim(min(0, len(series) - 2) - 0.6, len(series) - 0.4)
    _time_axis(axes, time)
    seen = {value for one in series for _, value in one.points}
    words = [word for word in panel.words if word.value in seen]
    patches = [Patch(color=COLOURS[word.tone], alpha=0.6, label=word.text) for word in words]
    axes.legend(
        handles=patches, fontsize=SMALL, loc="upper left", bbox_to_anchor=(0, -0.2), ncols=len(patches),
        frameon=False, handlelength=1.0, columnspacing=1.0,
    )  # fmt: skip


_DRAWN: dict[Kind, Callable[[Axes, Panel, list[Series], Time], None]] = {
    Kind.Lines: _lines,
    Kind.Stacked: _stacked,
    Kind.Number: _number,
    Kind.Bars: _bars,
    Kind.Table: _table,
    Kind.Timeline: _timeline,
}
