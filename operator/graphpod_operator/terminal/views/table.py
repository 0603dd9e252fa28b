"""The table of `graphpod top`, fitted to a width. Pure.

It begins with every column in full. While it is too wide, the next step of NARROWER is taken: a column gives way to a
shorter one or goes. What a missing column would have said of fallbacks stands below the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from graphpod_operator.explain.text import Ink, Paint, plain
from graphpod_operator.terminal.values.load import Load
from graphpod_operator.terminal.views.row import Row
from graphpod_policy import Phase, Policy
from graphpod_policy.units import count

WIDE_GAP = "  "
"""Between columns; in a narrow table one space."""
UNKNOWN = "-"
NAME_MAX, NAMESPACE_MAX = 16, 12
"""Characters of names in a narrow table."""
MOST_RATE = 1e9
LINES_BELOW = 8
"""Most lines below the table."""

SHORT: dict[str, str] = {Policy.Breakable: "Brk", Policy.Piecewise: "Pcw", Policy.Full: "Full", Policy.Disabled: "Off"}
INKS = {"Ready": Ink.Good, "Starting": Ink.Care, "Downloading": Ink.Care, "Degraded": Ink.Care}
INKS |= {"Suspended": Ink.Faint, "Sleeping": Ink.Faint}
"""Of status.phase; any other word is bad."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column; numbers stand right."""

    title: str
    cell: Callable[[Row], str]
    right: bool = False


def rate(value: float) -> str:
    """A rate as people read it: 0, 0.04, 4.2, 420, 42k."""
    if value >= MOST_RATE:
        return ">1G"
    if value >= 99.5:
        return f"{value:.0f}" if value < 9999.5 else f"{value / 1000:.0f}k" if value < 999_500 else count(int(value))
    return "0" if value < 0.005 else f"{value:.2f}" if value < 0.995 else f"{value:.1f}"


def _of_load(show: Callable[[Load], str | None]) -> Callable[[Row], str]:
    return lambda row: (show(row.load) if row.load is not None else None) or UNKNOWN


def _total(rates: object) -> str | None:
    return rate(sum(rates.values())) if isinstance(rates, dict) else None


def _share(value: float | None) -> str | None:
    return f"{value:.0%}" if value is not None else None


def _number(value: float | None) -> str | None:
    return count(int(value)) if value is not None else None


def _seconds(value: float | None) -> str | None:
    if value is None:
        return None
    return f"{value * 1000:.0f}ms" if value < 0.9995 else f"{value:.1f}s"


def _policy(phase: Phase, words: dict[str, str], arrow: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        one = row.service.policies[phase]
        planned, effective = (words.get(word or "", word or UNKNOWN) for word in (one.planned, one.effective))
        if one.effective is None:
            return f"({planned})" if one.planned else UNKNOWN
        return f"{planned}{arrow}{effective}" if one.is_weaker else effective

    return cell


def _graphs(row: Row) -> str:
    return "/".join(_policy(phase, SHORT, "→")(row) for phase in Phase).replace(")/(", "/")


def _reasons(found: Load) -> str | None:
    if found.fallbacks is None:
        return None
    total = rate(sum(found.fallbacks.values()))
    return " ".join([total, *(f"{reason} {rate(one)}" for reason, one in found.fallbacks.items())])


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _note(row: Row) -> str:
    if row.unread:
        return f"{row.unread} unread"
    return "no series" if row.troubles else ""


COLUMNS: dict[str, Column] = {
    "namespace": Column("NAMESPACE", lambda row: row.service.namespace),
    "namespace cut": Column("NAMESPACE", lambda row: _cut(row.service.namespace, NAMESPACE_MAX)),
    "name": Column("NAME", lambda row: row.service.name),
    "name cut": Column("NAME", lambda row: _cut(row.service.name, NAME_MAX)),
    "status": Column("STATUS", lambda row: row.service.phase),
    "prefill": Column("PREFILL", _policy(Phase.Prefill, {}, " → ")),
    "decode": Column("DECODE", _policy(Phase.Decode, {}, " → ")),
    "graphs": Column("GRAPHS", _graphs),
    "captured": Column("CAPTURED", lambda row: row.service.captured or UNKNOWN, right=True),
    "capt": Column("CAPT", lambda row: row.service.captured or UNKNOWN, right=True),
    "ready": Column("READY", lambda row: row.service.pods or UNKNOWN, right=True),
    "replays": Column("REPLAYS/s", _of_load(lambda found: _total(found.replays)), right=True),
    "repl": Column("REPL/s", _of_load(lambda found: _total(found.replays)), right=True),
    "fallbacks": Column("FALLBACKS/s", _of_load(_reasons)),
    "fall": Column("FALL/s", _of_load(lambda found: _total(found.fallbacks)), right=True),
    "padding": Column("PADDING", _of_load(lambda found: _share(found.padding)), right=True),
    "pad": Column("PAD", _of_load(lambda found: _share(found.padding)), right=True),
    "drafts right": Column("DRAFTS RIGHT", _of_load(lambda found: _share(found.drafts)), right=True),
    "drft": Column("DRFT", _of_load(lambda found: _share(found.drafts)), right=True),
    "waiting": Column("WAITING", _of_load(lambda found: _number(found.waiting)), right=True),
    "wait": Column("WAIT", _of_load(lambda found: _number(found.waiting)), right=True),
    "running": Column("RUNNING", _of_load(lambda found: _number(found.running)), right=True),
    "run": Column("RUN", _of_load(lambda found: _number(found.running)), right=True),
    "kv used": Column("KV USED", _of_load(lambda found: _share(found.kv)), right=True),
    "kv": Column("KV", _of_load(lambda found: _share(found.kv)), right=True),
    "ttft p95": Column("TTFT P95", _of_load(lambda found: _seconds(found.ttft)), right=True),
    "ttft": Column("TTFT", _of_load(lambda found: _seconds(found.ttft)), right=True),
    "note": Column("NOTE", _note),
}

WIDE = (
    *("namespace", "name", "status", "prefill", "decode", "captured", "ready", "replays", "padding"),
    *("drafts right", "waiting", "running", "kv used", "ttft p95", "fallbacks", "note"),
)
"""Every column, as on a terminal that is wide enough. That of drafts is there if a service verifies some, that of notes
if there are any.
"""

NARROWER: tuple[tuple[tuple[str, ...], str | None], ...] = (
    (("padding",), "pad"),
    (("drafts right",), "drft"),
    (("waiting",), "wait"),
    (("running",), "run"),
    (("kv used",), "kv"),
    (("ttft p95",), "ttft"),
    (("captured",), "capt"),
    (("replays",), "repl"),
    (("fallbacks",), "fall"),
    (("prefill", "decode"), "graphs"),
    (("name",), "name cut"),
    (("namespace",), "namespace cut"),
    ((WIDE_GAP,), None),
    (("run",), None),
    (("kv",), None),
    (("drft",), None),
    (("pad",), None),
    (("ttft",), None),
    (("wait",), None),
    (("capt",), None),
    (("ready",), None),
    (("graphs",), None),
)
"""What gives way first when the terminal is too narrow, and to what. Every row keeps name, status, rates and note."""


def table(rows: Sequence[Row], width: int | None, namespaces: bool, paint: Paint = plain) -> list[str]:
    """The lines of the table and those below it. `width` None: everything, as in a pipe; `namespaces`: they have a
    column.
    """
    if not rows:
        return ["no InferenceServices"]
    shown = [key for key in WIDE if namespaces or key != "namespace"]
    if not any(map(_note, rows)):
        shown.remove("note")
    if all(row.load is None or row.load.drafts is None for row in rows):
        shown.remove("drafts right")
    gap = len(WIDE_GAP)
    for keys, shorter in NARROWER:
        if width is None or _width(shown, rows, gap) <= width:
            break
        if keys == (WIDE_GAP,):
            gap = 1
        elif keys[0] in shown:
            at = shown.index(keys[0])
            shown[at : at + len(keys)] = [shorter] if shorter else []
    return [*_lines(shown, rows, width, gap, paint), *_below(rows, shown, width, paint)]


def _sizes(keys: Sequence[str], rows: Sequence[Row]) -> list[int]:
    return [max(len(COLUMNS[key].title), *(len(COLUMNS[key].cell(row)) for row in rows)) for key in keys]


def _width(keys: Sequence[str], rows: Sequence[Row], gap: int) -> int:
    return sum(_sizes(keys, rows)) + gap * (len(keys) - 1)


def _lines(keys: Sequence[str], rows: Sequence[Row], width: int | None, gap: int, paint: Paint) -> Iterator[str]:
    sizes = _sizes(keys, rows)

    def line(cells: Sequence[str], inks: Sequence[Ink | None]) -> str:
        left, parts = width, []
        for key, size, cell, ink in zip(keys, sizes, cells, inks, strict=True):
            part = f"{cell:>{size}}" if COLUMNS[key].right else f"{cell:<{size}}"
            if left is not None:
                part = part[: max(0, left)]
                left -= len(part) + gap
            part = part.rstrip() if key == keys[-1] else part
            parts.append(paint(ink, part) if ink is not None and part.strip() else part)
        return (" " * gap).join(parts).rstrip()

    yield line([COLUMNS[key].title for key in keys], [Ink.Faint] * len(keys))
    for row in rows:
        yield line([COLUMNS[key].cell(row) for key in keys], [_ink(key, row) for key in keys])


def _ink(key: str, row: Row) -> Ink | None:
    if key == "status":
        return INKS.get(row.service.phase, Ink.Bad)
    if key == "note":
        return Ink.Bad
    falls = row.load is not None and bool(row.load.fallbacks)
    return Ink.Care if key in ("fall", "fallbacks") and falls else None


def _below(rows: Sequence[Row], shown: Sequence[str], width: int | None, paint: Paint) -> list[str]:
    """What could not be read and why; fallbacks by reason where their column has only the sum."""
    several = "namespace" in shown or "namespace cut" in shown
    found: list[tuple[Ink, str]] = []
    for row in rows:
        short = COLUMNS["name cut" if "name cut" in shown else "name"].cell(row)
        name = f"{row.service.namespace}/{short}" if several else short
        found += [(Ink.Bad, f"{name}: {trouble}") for trouble in row.troubles]
        if "fallbacks" not in shown and row.load is not None and row.load.fallbacks:
            reasons = ", ".join(f"{reason} {rate(one)}/s" for reason, one in row.load.fallbacks.items())
            found.append((Ink.Care, f"{name}: falls back by {reasons}"))
    lines = [paint(ink, _cut(line, width) if width else line) for ink, line in found[:LINES_BELOW]]
    if len(found) > LINES_BELOW:
        lines.append(f"and {len(found) - LINES_BELOW} more; all of them: graphpod top -o json")
    return ["", *lines] if lines else []
