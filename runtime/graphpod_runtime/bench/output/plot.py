"""A result as one picture: speed against its floor, what captures and breaks cost, where a start's time goes.

Its ground is transparent and its ink a grey that reads on white and on black. Colours are Okabe and Ito's, which
people of every colour vision can tell apart; what is compiled is dashed as well.
"""

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from itertools import cycle
from math import floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphpod_policy import CompileMode, Phase, Policy
from graphpod_runtime.bench.figures.result import Result, Row
from graphpod_runtime.bench.output.table import stages_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.typing import RcKeyType

INK = "#7d7d7d"
COLOURS = {
    Policy.Disabled: "#999999",
    Policy.Breakable: "#1F83C4",
    Policy.Piecewise: "#E69F00",
    Policy.Full: "#009E73",
}
MARKS = {Policy.Disabled: "s", Policy.Breakable: "o", Policy.Piecewise: "D", Policy.Full: "^"}
STAGE_COLOURS = ("#56B4E9", "#0072B2", "#E69F00", "#009E73", "#F0E442", "#CC79A7", "#D55E00", "#999999", "#8C564B")
REFERENCE_COLOUR = "#CC79A7"
LIMIT_COLOUR = "#D55E00"
LEGEND = 10
"""Entries that need two rows."""
BAR, BARS = 0.66, 7
"""Thickness of a bar, of its slot; and the slots of a panel, at least."""
WIDTH, HEIGHT, DPI = 15.0, 8.6, 130
"""Inches, inches, dots in an inch."""

STYLE: "dict[RcKeyType, Any]" = {
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.transparent": True,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
    "grid.alpha": 0.22,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titleweight": "bold",
    "axes.titlesize": 11,
    "font.size": 9.5,
    "legend.frameon": False,
}


class NoMatplotlib(Exception):
    """The picture cannot be drawn here."""


def available() -> None:
    """NoMatplotlib where it is not installed: raised before minutes of measuring."""
    if find_spec("matplotlib") is None:
        raise NoMatplotlib(
            "--png needs matplotlib, which is not installed; in a clone: pip install '.[bench]', or write --json "
            "here and draw it elsewhere with --from FILE --png FILE"
        )


def draw(result: Result, path: Path) -> None:
    """The picture in `path`, a PNG."""
    available()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    path.parent.mkdir(parents=True, exist_ok=True)
    with pyplot.rc_context(STYLE):
        figure, places = pyplot.subplots(2, 3, figsize=(WIDTH, HEIGHT), layout="constrained")
        free = list(places.flat)
        handles: dict[str, Any] = {}
        for panel in PANELS:
            if panel(free[0], result):
                place = free.pop(0)
                if place.get_legend() is None:
                    found, labels = place.get_legend_handles_labels()
                    handles |= dict(zip(labels, found, strict=True))
        for place in free:
            place.axis("off")
        columns = len(handles) if len(handles) < LEGEND else -(-len(handles) // 2)
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns)
        figure.suptitle(_title(result), fontsize=12, color=INK)
        figure.savefig(path, dpi=DPI)
        pyplot.close(figure)


def _title(result: Result) -> str:
    machine, model = result.machine, result.model
    weights = "random weights" if model.random else "real weights"
    return (
        f"{model.name}, {model.dtype}, {weights} — {machine.device} — graphpod {machine.versions['graphpod']}, "
        f"torch {machine.versions['torch']}, {result.date[:10]}"
    )


def _line(row: Row, phase: Phase) -> dict[str, Any]:
    """How a row is drawn in every panel of lines."""
    policy, compiled = row.effective(phase), row.variant.compile is not CompileMode.Nothing
    if row.variant.reference:
        return {"label": row.label(phase), "color": REFERENCE_COLOUR, "marker": "x", "linewidth": 1.2, "markersize": 6}
    return {
        "label": row.label(phase),
        "color": COLOURS[policy],
        "marker": MARKS[policy],
        "linestyle": "--" if compiled else "-",
        "markerfacecolor": "none" if compiled else COLOURS[policy],
        "markersize": 6,
        "linewidth": 1.8,
    }


def _sizes(place: "Axes", sizes: list[int]) -> None:
    """A logarithmic axis with a tick at each size."""
    from matplotlib.ticker import NullLocator

    place.set_xscale("log", base=2)
    place.set_xticks(sizes, [str(size) for size in sizes])
    place.xaxis.set_minor_locator(NullLocator())


def plain_ticks(axis: Any) -> None:
    """Ticks of a logarithmic axis as plain numbers, at 1, 2 and 5."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5), numticks=12))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}".replace(",", " ")))


def _prefill(place: "Axes", result: Result) -> bool:
    floors = [(floor.size, 1e3 * floor.seconds) for floor in result.prefill_floors]
    _limit(place, floors, shaded_to=min(ms for _, ms in floors) / 1.4)
    for row in result.rows_of(Phase.Prefill):
        place.plot(*_columns((at.size, 1e3 * at.seconds) for at in row.prefill), **_line(row, Phase.Prefill))
    place.set_title("Prefill of one request, in process")
    place.set_xlabel("tokens (log)")
    place.set_ylabel("ms to the first token (log)")
    place.set_ylim(bottom=min(ms for _, ms in floors) / 1.4)
    plain_ticks(place.yaxis)
    return True


def _decode(place: "Axes", result: Result) -> bool:
    most = [(floor.size, floor.size / floor.seconds) for floor in result.decode_floors]
    _limit(place, most, shaded_to=max(rate for _, rate in most) * 1.4)
    for row in result.rows_of(Phase.Decode):
        place.plot(*_columns((at.size, at.size / at.seconds) for at in row.decode), **_line(row, Phase.Decode))
    place.set_title("Decode, in process")
    place.set_xlabel("sequences in the batch (log)")
    place.set_ylabel("tokens per second (log)")
    place.set_ylim(top=max(rate for _, rate in most) * 1.4)
    plain_ticks(place.yaxis)
    return True


def _limit(place: "Axes", points: list[tuple[int, float]], shaded_to: float) -> None:
    """What the hardware allows, on logarithmic axes, and the shaded ground that no engine can reach."""
    sizes, values = _columns(points)
    _sizes(place, sizes)
    place.set_yscale("log")
    place.plot(sizes, values, color=LIMIT_COLOUR, linestyle=":", linewidth=2, label="limit of the hardware")
    place.fill_between(sizes, values, shaded_to, color=LIMIT_COLOUR, alpha=0.12, linewidth=0)


def _columns(points: Iterable[tuple[int, float]]) -> tuple[list[int], list[float]]:
    points = list(points)
    return [size for size, _ in points], [value for _, value in points]


def _captures(place: "Axes", result: Result) -> bool:
    """Of prefill sizes, of which there are many."""
    phase = Phase.Prefill
    rows = [(row, row.ready.phases[phase].by_size) for row in result.rows_of(phase) if row.ready is not None]
    rows = [(row, costs) for row, costs in rows if costs]
    if not rows:
        return False
    for row, costs in rows:
        ordered = sorted((cost.size, 1e3 * cost.seconds) for cost in costs)
        place.plot(*_columns(ordered), **_line(row, phase) | {"markersize": 4, "linewidth": 1.3})
    place.set_title("Capture of each prefill size")
    place.set_xlabel("tokens (log)")
    place.set_ylabel("ms (log)")
    place.set_yscale("log")
    least = min(cost.seconds for _, costs in rows for cost in costs)
    place.set_ylim(bottom=10 ** floor(log10(1e3 * least)))
    plain_ticks(place.yaxis)
    sizes = {cost.size for _, costs in rows for cost in costs}
    _sizes(place, [size for size in (4**power for power in range(10)) if min(sizes) <= size <= max(sizes)])
    return True


def _memory(place: "Axes", result: Result) -> bool:
    """Pool and driver of every phase that has graphs."""
    bars = [
        (f"{phase} {row.label(phase)}", row.ready.phases[phase], COLOURS[row.effective(phase)])
        for phase in Phase
        for row in result.rows_of(phase)
        if row.ready is not None and row.effective(phase) is not Policy.Disabled
    ]
    if not bars:
        return False
    for at, (_, capture, colour) in enumerate(bars):
        pool, driver = capture.pool_bytes / 1e6, capture.driver_bytes / 1e6
        place.barh(at, pool, color=colour, height=BAR)
        place.barh(at, driver, left=pool, color=colour, height=BAR, alpha=0.45, hatch="////", edgecolor=INK)
        sizes = f"{capture.captured} size{'s' if capture.captured > 1 else ''} in {capture.seconds:.2g} s"
        _label_bar(place, at, pool + driver, f"{pool + driver:.0f} MB, {sizes}")
    place.set_title("Memory of all graphs: pool, and driver (hatched)")
    place.set_xlabel("MB")
    _named(place, [name for name, _, _ in bars], room=0.6)
    return True


def _starts(place: "Axes", result: Result) -> bool:
    bars = [(row, start) for row in result.rows for start in row.starts]
    if not bars:
        return False
    left = [0.0] * len(bars)
    for stage, colour in zip(stages_of(result), cycle(STAGE_COLOURS), strict=False):
        widths = [start.stages.get(stage, 0.0) for _, start in bars]
        place.barh(range(len(bars)), widths, left=left, color=colour, height=BAR, label=_words(stage))
        left = [at + width for at, width in zip(left, widths, strict=True)]
    for at, (_, start) in enumerate(bars):
        _label_bar(place, at, left[at], f"{start.seconds:.1f} s")
    place.set_title("Start: from process start to Ready")
    place.set_xlabel("seconds")
    names = [row.variant.name if len(row.starts) == 1 else f"{row.variant.name}, {start.cache}" for row, start in bars]
    _named(place, names, room=0.16)
    place.legend(loc="upper center", bbox_to_anchor=(0.4, -0.13), ncols=4, fontsize=8.5)
    return True


def _words(stage: str) -> str:
    """PrefillCapture -> prefill capture"""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in stage).strip()


def _breaks(place: "Axes", result: Result) -> bool:
    """The share of a pass that its breaks take."""
    bars = [(row, cost) for row in result.rows for cost in row.breaks]
    if not bars:
        return False
    for at, (row, cost) in enumerate(bars):
        share = 100 * (cost.broken / cost.whole - 1)
        compiled = row.variant.compile is not CompileMode.Nothing
        place.barh(at, share, color=COLOURS[Policy.Breakable], height=BAR, alpha=0.55 if compiled else 1)
        label = f"{cost.breaks} × {1e6 * cost.each:.3g} µs" if cost.each > 0 else "within noise"
        _label_bar(place, at, max(share, 0), label)
    place.axvline(0, color=INK, linewidth=0.8)
    place.set_title("Breaks, compared with the same code as one graph")
    place.set_xlabel("added to one graph, %")
    names = [f"{cost.phase} {cost.size}, {row.variant.compile.value.lower()}" for row, cost in bars]
    _named(place, [name.removesuffix(f", {CompileMode.Nothing.value.lower()}") for name in names], room=0.4)
    return True


def _label_bar(place: "Axes", at: int, end: float, text: str) -> None:
    """`text` right of the bar that ends at `end`."""
    place.annotate(text, (end, at), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8.5)


def _named(place: "Axes", names: list[str], room: float) -> None:
    """Horizontal bars from the top, none thicker than those of a full panel; `room` is for the words next to them."""
    place.set_yticks(range(len(names)), names)
    place.set_ylim(max(len(names), BARS) - 0.5, -0.5)
    place.margins(x=room)
    place.grid(axis="y", visible=False)


Panel = Callable[["Axes", Result], bool]
"""Draws on a place; False, and nothing drawn, where the result has nothing of it."""

PANELS: tuple[Panel, ...] = (_prefill, _decode, _starts, _captures, _memory, _breaks)
