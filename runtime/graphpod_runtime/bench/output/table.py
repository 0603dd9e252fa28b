"""A result as text: tables that a person reads in a terminal."""

from collections.abc import Sequence
from typing import NamedTuple

from graphpod_policy import Phase, Policy
from graphpod_runtime.bench.figures.result import Result, Row, SizeCost, Speed, Start
from graphpod_runtime.wire.report import StartStage

NOTHING = 5e-4
"""Seconds below which a stage had no work."""
LABEL = 24
"""Columns of a row's name."""


class Unit(NamedTuple):
    """How one phase is described."""

    title: str
    size: str
    of: str


UNITS = {
    Phase.Prefill: Unit("Prefill of one request, its first token on the host", "{} tokens", "ms"),
    Phase.Decode: Unit("Decode, every token on the host", "batch {}", "tok/s"),
}


def table(result: Result, width: int = 120) -> str:
    """All of it, at most `width` columns where its parts allow."""
    parts = [
        _head(result),
        *(_speeds(result, phase, width) for phase in Phase),
        _wire(result, width),
        _breaks(result),
        _captures(result),
        _sizes(result, width),
        _starts(result),
        _clock(result),
        _notes(result),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(result: Result) -> str:
    machine, model, work = result.machine, result.model, result.workload
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    device = machine.device if machine.driver is None else f"{machine.device}, driver {machine.driver}"
    threads = f", {machine.threads} of {machine.cores} cores" if machine.driver is None else ""
    return "\n".join(
        (
            f"{model.name}, {model.dtype}, {'random' if model.random else 'real'} weights: "
            f"{digits(model.parameters / 1e6)} million, {digits(model.read_bytes(1) / 1e6)} MB read "
            + ("for one row" if model.expert_weights else "a pass"),
            f"{device}{threads}; {versions}; {result.date}",
            f"floors from copies at {result.rates.copy_bytes / 1e9:.4g} GB/s and matrix products at "
            f"{result.rates.matmul_operations / 1e12:.3g} TFLOP/s; decode is batch · {work.steps} / "
            f"(t({work.long} new) - t({work.short} new)), prompts of {work.prompt} tokens; "
            f"{work.rounds} round{'s' if work.rounds > 1 else ''}",
        )
    )


def _speeds(result: Result, phase: Phase, width: int) -> str:
    rows = result.rows_of(phase)
    if not rows:
        return ""
    unit, floors = UNITS[phase], result.floors(phase)
    columns = [
        [
            unit.size.format(floor.size),
            f"{shown(phase, floor.size, floor.seconds)} {floor.bound:>12}",
            *(_cell(phase, _at(row, phase, floor.size)) for row in rows),
        ]
        for floor in floors
    ]
    names = [f"{unit.of}, × eager, of floor", "floor", *(row.label(phase) for row in rows)]
    return _side_by_side(unit.title, names, columns, width)


def _at(row: Row, phase: Phase, size: int) -> Speed | None:
    return next((speed for speed in row.speeds(phase) if speed.size == size), None)


def _cell(phase: Phase, speed: Speed | None) -> str:
    if speed is None:
        return "-"
    times = "     " if speed.times_eager is None else f"{speed.times_eager:4.2f}×"
    return f"{shown(phase, speed.size, speed.seconds)} {times:>6} {speed.of_floor:5.0%}"


def shown(phase: Phase, size: int, seconds: float) -> str:
    """The figure of a phase for a pass of `seconds`: ms, or tokens per second."""
    return digits(1e3 * seconds) if phase is Phase.Prefill else digits(size / seconds)


def digits(value: float) -> str:
    """Three of them, or all before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value < 1e-3 else f"{value:#.3g}"


def _wire(result: Result, width: int) -> str:
    parts = []
    for phase, floors in ((phase, result.floors(phase)) for phase in Phase):
        rows = [row for row in result.rows_of(phase) if any(speed.wire_seconds for speed in row.speeds(phase))]
        if rows:
            columns = [
                [
                    UNITS[phase].size.format(floor.size),
                    *(_wire_cell(phase, _at(row, phase, floor.size)) for row in rows),
                ]
                for floor in floors
            ]
            names = [f"{UNITS[phase].of}, × in process", *(row.label(phase) for row in rows)]
            parts.append(
                _side_by_side(f"{phase.capitalize()} over the engine's wire, without HTTP", names, columns, width)
            )
    return "\n\n".join(parts)


def _wire_cell(phase: Phase, speed: Speed | None) -> str:
    if speed is None or speed.wire_seconds is None:
        return "-"
    return f"{shown(phase, speed.size, speed.wire_seconds)} {speed.seconds / speed.wire_seconds:5.2f}×"


def _breaks(result: Result) -> str:
    lines = [
        (
            f"{cost.phase} {cost.size}, {row.label(cost.phase)}",
            str(cost.breaks),
            digits(1e3 * cost.broken),
            digits(1e3 * cost.whole),
            digits(1e3 * (cost.broken - cost.whole)) if cost.broken > cost.whole else "within noise",
            digits(1e6 * cost.each) if cost.broken > cost.whole else "-",
        )
        for row in result.rows
        for cost in row.breaks
    ]
    header = ("phase, size, policy", "breaks", "with, ms", "one graph, ms", "difference, ms", "a break, µs")
    return grid("Breaks: a Breakable graph compared with the same code as one graph", header, lines)


def _captures(result: Result) -> str:
    lines = [
        (
            f"{phase} {row.label(phase)}",
            f"{capture.captured}/{capture.planned}",
            str(capture.segments),
            digits(capture.seconds),
            _megabytes(capture.pool_bytes),
            _megabytes(capture.driver_bytes),
            _megabytes(capture.pool_bytes + capture.driver_bytes),
            capture.self_check,
        )
        for phase in Phase
        for row in result.rows
        if row.ready is not None and (capture := row.ready.phases[phase]).policy is not Policy.Disabled
    ]
    header = ("phase, policy", "sizes", "segments", "seconds", "pool MB", "driver MB", "sum MB", "self-check")
    return grid("Capture, in sum", header, lines)


def _sizes(result: Result, width: int) -> str:
    parts = []
    for phase in Phase:
        rows = [(row, row.ready.phases[phase].by_size) for row in result.rows_of(phase) if row.ready is not None]
        rows = [(row, {cost.size: cost for cost in costs}) for row, costs in rows if costs]
        if not rows:
            continue
        ladder = sorted({size for _, costs in rows for size in costs})
        wanted = {ladder[0], ladder[-1], *(floor.size for floor in result.floors(phase))}
        columns = [
            [UNITS[phase].size.format(size), *(_cost_cell(costs.get(size)) for _, costs in rows)]
            for size in ladder
            if size in wanted
        ]
        names = ["ms, MB of pool | driver", *(row.label(phase) for row, _ in rows)]
        parts.append(_side_by_side(f"Capture of one {phase} size, of {len(ladder)}", names, columns, width))
    return "\n\n".join(parts)


def _cost_cell(cost: SizeCost | None) -> str:
    if cost is None:
        return "-"
    return f"{digits(1e3 * cost.seconds)}  {_megabytes(cost.pool_bytes):>5} | {_megabytes(cost.driver_bytes)}"


def _starts(result: Result) -> str:
    starts = [(row, start) for row in result.rows for start in row.starts]
    stages = stages_of(result)
    lines = [
        (_start_name(row, start), digits(start.seconds), *(_seconds(start.stages.get(stage, 0)) for stage in stages))
        for row, start in starts
    ]
    return grid("Start, s: from process start to Ready", ("variant, compile cache", "all", *stages), lines)


def _clock(result: Result) -> str:
    """Of starts that captured prefill graphs."""
    clocks = [
        (_start_name(row, start), start.capture_clock)
        for row in result.rows
        for start in row.starts
        if start.phases[Phase.Prefill].captured
    ]
    parts = list(dict.fromkeys(part for _, clock in clocks for part in clock))
    lines = [(name, digits(sum(clock.values())), *(_seconds(clock[part]) for part in parts)) for name, clock in clocks]
    title = "Capture clock, s: weights on the device to the last prefill graph"
    return grid(title, ("variant, compile cache", "all", *parts), lines)


def _start_name(row: Row, start: Start) -> str:
    return row.variant.name if len(row.starts) == 1 else f"{row.variant.name}, {start.cache}"


def _seconds(took: float) -> str:
    return digits(took) if took >= NOTHING else "-"


def stages_of(result: Result) -> list[str]:
    """Every stage that took time in some start, in the order of a start."""
    starts = [start for row in result.rows for start in row.starts]
    return [stage for stage in StartStage if any(start.stages.get(stage, 0) >= NOTHING for start in starts)]


def _notes(result: Result) -> str:
    notes = []
    for row in result.rows:
        name = row.variant.name
        if row.failure is not None:
            notes.append(f"{name} failed: {row.failure}")
        notes += [
            f"{name}: {phase} was asked for {row.variant.policy(phase)} and ran {row.effective(phase)}"
            for phase in Phase
            if row.degraded(phase)
        ]
        notes += [f"{name}: {decision}" for decision in (row.ready.decisions if row.ready else ())]
        if row.fallbacks:
            notes.append(f"{name}: {row.fallbacks} passes fell back to eager: they are in its times")
        if row.breaks_left_out is not None:
            notes.append(f"{name}: no break costs: {row.breaks_left_out}")
    notes += [f"{left.name} was left out: {left.why}" for left in result.left_out]
    return "\n".join(dict.fromkeys(f"! {note}" for note in notes))


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f}"


def _side_by_side(title: str, names: list[str], columns: list[list[str]], width: int) -> str:
    """Rows `names`, one column for each size, in as many blocks as the width asks for. The first name is the header."""
    blocks: list[str] = []
    label = max(LABEL, *(len(name) for name in names))
    gap = 3
    each = gap + max(len(cell) for column in columns for cell in column)
    fitting = max(1, (width - label) // each)
    for first in range(0, len(columns), fitting):
        block = columns[first : first + fitting]
        widths = [gap + max(map(len, column)) for column in block]
        blocks += [
            f"{name:<{label}}" + "".join(f"{column[at]:>{wide}}" for column, wide in zip(block, widths, strict=True))
            for at, name in enumerate(names)
        ]
        blocks.append("")
    return "\n".join([title, *blocks[:-1]])


def grid(title: str, header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Empty without lines."""
    if not lines:
        return ""
    widths = [max(len(line[at]) for line in (header, *lines)) for at in range(len(header))]
    rows = [
        "  ".join(
            f"{cell:<{wide}}" if at == 0 else f"{cell:>{wide}}"
            for at, (cell, wide) in enumerate(zip(line, widths, strict=True))
        )
        for line in (header, *lines)
    ]
    return "\n".join([title, *rows])
