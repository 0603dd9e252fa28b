"""A report as text."""

from collections.abc import Sequence

from graphpod_runtime.bench.output.table import digits, grid
from graphpod_runtime.bench.serve.figures.report import Part, Report, Row
from graphpod_runtime.bench.serve.figures.spread import Spread
from graphpod_runtime.bench.serve.figures.summary import Summary

NOTHING = "-"


def table(report: Report, against: Report | None = None) -> str:
    """Failures first, then where and what, then the figures: of one row in full, of several a line each."""
    one = report.rows[0] if len(report.rows) == 1 else None
    parts = [
        _failures(report.rows),
        _head(report),
        "\n\n".join(_full(part) for part in one.parts) if one else _lines(report.rows),
        _driver(one) if one else _turns(report.rows),
        _against(report, against) if against else "",
        _warnings(report.rows),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _failures(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        if row.failed:
            asked = sum(part.seen.requests for part in row.parts)
            lines.append(f"FAILED: {row.failed} of {asked} requests of {row.name}")
            for part in row.parts:
                lines += [f"  {one.count} × {one.kind}, first: {one.example}" for one in part.seen.failures]
    return "\n".join(lines)


def _head(report: Report) -> str:
    machine, server = report.machine, report.server
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    starts = f"; ready in {', '.join(f'{seconds:.1f}' for seconds in server.starts)} s" if server.starts else ""
    return "\n".join(
        (
            f"{server.model} by {server.version} at {server.url}{starts}",
            f"driver: {'; '.join((*machine.gpus, machine.cpu))}, {machine.cores} cores; {versions}; {report.date}",
        )
    )


def _full(part: Part) -> str:
    seen = part.seen
    lines = [
        f"load       {part.words or 'defaults'}; prompts: {part.prompts}, seed {part.seed}",
        f"requests   {seen.completed} completed, {seen.cancelled} cancelled, {seen.failed} failed in "
        f"{seen.seconds:.1f} s: {digits(seen.requests_per_second)}/s",
        f"input      {seen.input_tokens} tokens, {digits(seen.input_tokens_per_second)}/s"
        + (f", {seen.cached_tokens} of them from the server's cache" if seen.cached_tokens else ""),
        f"output     {seen.output_tokens} tokens, {digits(seen.output_tokens_per_second)}/s, in {seen.pieces} pieces",
    ]
    if seen.goodput is not None:
        good = seen.goodput
        lines.append(f"goodput    {digits(good.requests_per_second)} requests/s, {good.share:.0%} within {good.slo}")
    turns = {f"TTFT, turn {turn}": found for turn, found in enumerate(seen.turn_ttft, start=1)}
    named = {"TTFT": seen.ttft, **turns, "ITL": seen.itl, "TPOT": seen.tpot, "E2E": seen.e2e}
    rows = [(name, *_milliseconds(found)) for name, found in named.items() if found is not None]
    return "\n".join([*lines, "", grid("", ("ms", "mean", "p50", "p90", "p99", "max"), rows).lstrip("\n")])


def _milliseconds(found: Spread) -> tuple[str, ...]:
    values = (found.mean, found.p50, found.p90, found.p99, found.curve[-1])
    return tuple(digits(1e3 * value) for value in values)


def _driver(row: Row) -> str:
    used = row.drivers
    processes = f"{used.processes} process{'es' if used.processes > 1 else ''}"
    return (
        f"driver     {processes}, the busiest used {used.busiest:.0%} of a core, late by {1e3 * used.lag:.1f} ms (p99)"
    )


COLUMNS = ("row", "requests", "failed", "req/s", "in tok/s", "out tok/s", "good/s", "TTFT p50", "p99", "ITL p50", "p99",
           "TPOT p50", "E2E p50", "driver")  # fmt: skip


def _lines(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        for at, part in enumerate(row.parts):
            seen = part.seen
            lines.append(
                (
                    row.name if at == 0 else f"+ {row.name}",
                    str(seen.requests),
                    str(seen.failed),
                    digits(seen.requests_per_second),
                    digits(seen.input_tokens_per_second),
                    digits(seen.output_tokens_per_second),
                    digits(seen.goodput.requests_per_second) if seen.goodput else NOTHING,
                    _at(seen.ttft, "p50"),
                    _at(seen.ttft, "p99"),
                    _at(seen.itl, "p50"),
                    _at(seen.itl, "p99"),
                    _at(seen.tpot, "p50"),
                    _at(seen.e2e, "p50"),
                    f"{row.drivers.processes} × {row.drivers.busiest:.0%}" if at == 0 else "",
                )
            )
    return grid("Latencies are ms; driver: processes × the busiest one's share of a core", COLUMNS, lines)


def _turns(rows: Sequence[Row]) -> str:
    """Of rows whose conversations have several turns: how much sooner do later ones begin?"""
    lines = []
    for row in rows:
        turns = [turn for turn in row.parts[0].seen.turn_ttft if turn is not None]
        for at, turn in enumerate(turns, start=1):
            name = f"{row.name}, turn {at}"
            lines.append((name, digits(1e3 * turn.p50), digits(1e3 * turn.p99), f"{turn.p50 / turns[0].p50:.2f}"))
    return grid("TTFT by turn of a conversation, ms", ("row", "p50", "p99", "× first"), lines)


def _at(found: Spread | None, percent: str) -> str:
    return NOTHING if found is None else digits(1e3 * getattr(found, percent))


def _against(report: Report, other: Report) -> str:
    """Ratios of rows that both have, made of the same requests."""
    lines = []
    for row in report.rows:
        theirs = other.row(row.name)
        if theirs is not None and _same(row, theirs):
            pairs = _figures(row.parts[0].seen), _figures(theirs.parts[0].seen)
            lines.append((row.name, *(_ratio(mine, its) for mine, its in zip(*pairs, strict=True))))
    title = f"× of {other.server.model} by {other.server.version}, {other.date}"
    header = ("row", "req/s", "out tok/s", "TTFT p50", "p99", "ITL p50", "p99", "TPOT p50", "E2E p50")
    return grid(title, header, lines) or f"no row is in both reports with the same words, prompts and seed ({title})"


def _same(one: Row, other: Row) -> bool:
    """Whether two rows sent the same requests."""
    first, second = ([(part.words, part.prompts, part.seed) for part in row.parts] for row in (one, other))
    return first == second


def _figures(seen: Summary) -> tuple[float | None, ...]:
    def at(found: Spread | None, percent: str) -> float | None:
        return None if found is None else float(getattr(found, percent))

    latencies = (at(seen.ttft, "p50"), at(seen.ttft, "p99"), at(seen.itl, "p50"), at(seen.itl, "p99"))
    return (
        seen.requests_per_second, seen.output_tokens_per_second, *latencies, at(seen.tpot, "p50"), at(seen.e2e, "p50")
    )  # fmt: skip


def _ratio(mine: float | None, its: float | None) -> str:
    return NOTHING if mine is None or not its else f"{mine / its:.2f}"


def _warnings(rows: Sequence[Row]) -> str:
    return "\n".join(f"! {row.name}: {warning}" for row in rows for warning in row.warnings)
