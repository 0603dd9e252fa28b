"""What runs found, for people and for later: a table beside the limits, JSON, and gates that cite their runs."""

import json
import os
import platform
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.operator_scale.bed import CHILDREN
from benchmarks.operator_scale.measure import Run
from testbed import golang

RESULTS = Path("benchmarks/results/operator_scale.json")
GATES = Path("benchmarks/operator_scale/gates.json")
USUAL = 1000
"""Services that the limits are about."""
GROWTH = 5.5
"""The most that five times as many services may take, in times of USUAL."""
SLACK = 1.2
"""A gate is the mean of its runs times this."""
BESIDE = ("aiohttp", "kopf", "kubernetes", "pydantic", "uvloop")


class Unit(StrEnum):
    Seconds = "s"
    Megabytes = "MB"
    Writes = "writes"


@dataclass(frozen=True)
class Row:
    """One figure. `limit` is what is promised: of USUAL services, or `always`. Gates are for what varies."""

    name: str
    what: str
    unit: Unit
    limit: float | None = None
    always: bool = False

    def of(self, run: Run) -> float:
        """The figure in its unit."""
        value: float = getattr(run, self.name)
        return value / 1e6 if self.unit is Unit.Megabytes else value

    @property
    def gated(self) -> bool:
        return self.unit is not Unit.Writes


ROWS = (
    Row("fill_seconds", "first create → last child", Unit.Seconds, 60),
    Row("ready_seconds", "first create → last Ready", Unit.Seconds),
    Row("ready_p50", "create → Ready, half of them", Unit.Seconds),
    Row("ready_p99", "create → Ready, 99 of 100", Unit.Seconds),
    Row("fill_cpu", "operator's CPU until last Ready", Unit.Seconds),
    Row("writes_most", "writes for one service", Unit.Writes, len(CHILDREN) + 8, always=True),
    Row("rss_begin", "RSS before the first service", Unit.Megabytes),
    Row("rss_ready", "RSS with all Ready", Unit.Megabytes, 150),
    Row("rss_peak", "RSS at its peak", Unit.Megabytes, 150),
    Row("quiet_writes", "writes in the quiet", Unit.Writes, 0, always=True),
    Row("restart_seconds", "restart → nothing left to do", Unit.Seconds, 5),
    Row("restart_cpu", "operator's CPU for that", Unit.Seconds),
    Row("restart_peak", "RSS at its peak after a restart", Unit.Megabytes, 150),
    Row("restart_writes", "writes at restart", Unit.Writes, 0, always=True),
    Row("late_list_writes", "writes at restart, one list late", Unit.Writes, 0, always=True),
    Row("failover_seconds", "kill of the leader → a new child", Unit.Seconds, 20),
    Row("failover_settled", "… → nothing left to do", Unit.Seconds),
    Row("failover_writes", "writes for other services", Unit.Writes, 0, always=True),
)


@dataclass(frozen=True)
class Found:
    """The runs of one number of services, with what they were made with."""

    services: int
    command: str
    date: str
    machine: str
    versions: dict[str, str]
    loads: tuple[float, ...]
    """Load average before each run: other programs that ran beside it are in the seconds."""
    runs: tuple[Run, ...]

    @classmethod
    def of(cls, services: int, command: str, loads: Sequence[float], runs: Sequence[Run]) -> "Found":
        return cls(
            services, command, datetime.now(UTC).date().isoformat(), _machine(), _versions(), tuple(loads), tuple(runs)
        )

    def mean(self, row: Row) -> float:
        """Of a figure over the runs; of writes the most, since no run may exceed them."""
        values = [row.of(run) for run in self.runs]
        return max(values) if row.unit is Unit.Writes else statistics.mean(values)


def table(found: Found, gates: dict[str, Any]) -> str:
    """A line a figure: mean, range, what is promised, the gate."""
    gated = gates.get("gates", {}).get(str(found.services), {})
    count = f"{len(found.runs)} run" + "s" * (len(found.runs) > 1)
    lines = [f"{found.services} services, {count}, load before {', '.join(f'{load:.1f}' for load in found.loads)}"]
    for row in ROWS:
        values = [row.of(run) for run in found.runs]
        spread = f"{min(values):.1f} to {max(values):.1f}" if len(values) > 1 and row.gated else ""
        limit = _limit(row, found.services)
        told = f"≤ {limit:g}" if limit is not None else ""
        gate = f"gate {gated[row.name]:g}" if row.name in gated else ""
        lines.append(f"  {row.what:34} {found.mean(row):8.1f} {row.unit:6} {spread:16} {told:8} {gate}".rstrip())
    parts = found.runs[-1].cpu
    lines.append("  CPU s beside it: " + ", ".join(f"{name} {seconds:.0f}" for name, seconds in parts.items()))
    return "\n".join(lines)


def exceeded(founds: Sequence[Found], gates: dict[str, Any]) -> Iterator[str]:
    """What was promised and does not hold, and what is worse than its gate, in words."""
    for found in founds:
        for row in ROWS:
            limit, value = _limit(row, found.services), found.mean(row)
            gate = gates.get("gates", {}).get(str(found.services), {}).get(row.name)
            for bound, why in ((limit, "promised"), (gate, "the gate")):
                if bound is not None and value > bound:
                    yield f"{found.services} services: {row.what}: {value:.1f} {row.unit}, {why} is {bound:g}"
    by_size = {found.services: found.mean(ROWS[0]) for found in founds}
    if USUAL in by_size and 5 * USUAL in by_size and by_size[5 * USUAL] > GROWTH * by_size[USUAL]:
        growth = by_size[5 * USUAL] / by_size[USUAL]
        yield f"five times as many services take {growth:.2f} times as long, promised is {GROWTH}"


def _limit(row: Row, services: int) -> float | None:
    return row.limit if row.always or services <= USUAL else None


def save(founds: Sequence[Found], file: Path) -> None:
    """Write the results; those of other numbers of services stay."""
    kept = json.loads(file.read_text()) if file.exists() else {}
    kept |= {str(found.services): asdict(found) for found in founds}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(dict(sorted(kept.items(), key=lambda item: int(item[0]))), indent=1) + "\n")


def load_gates() -> dict[str, Any]:
    """The gates, or none."""
    return json.loads(GATES.read_text()) if GATES.exists() else {}


def set_gates(founds: Sequence[Found]) -> None:
    """Make gates of these runs."""
    gates = load_gates() or {"rule": f"mean of the runs × {SLACK}", "runs": {}, "gates": {}}
    for found in founds:
        key = str(found.services)
        gates["runs"][key] = {
            "results": str(RESULTS), "runs": len(found.runs), "command": found.command, "date": found.date,
            "machine": found.machine, "loads": found.loads,
        }  # fmt: skip
        gates["gates"][key] = {row.name: round(SLACK * found.mean(row), 1) for row in ROWS if row.gated}
    GATES.write_text(json.dumps(gates, indent=1) + "\n")


def _machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} threads, kernel {platform.release()}"


def _versions() -> dict[str, str]:
    tools = {name: golang.BY_NAME[name].version.rpartition(" ")[2] for name in ("kube-apiserver", "etcd", "kwok")}
    return {
        "graphpod": version("graphpod"),
        "python": platform.python_version(),
        **{name: version(name) for name in BESIDE},
        **tools,
    }
