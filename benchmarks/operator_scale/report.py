"""What runs found, for people and for later: a table next to the limits, JSON, and gates that cite their runs."""

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

from benchmarks.operator_scale.bed import CHILDREN, RATED, TUNED
from benchmarks.operator_scale.floor import Floor
from benchmarks.operator_scale.measure import Applied, Moment, Run
from testbed.binaries import golang

RESULTS = Path("benchmarks/results/operator_scale.json")
GATES = Path("benchmarks/operator_scale/gates.json")
USUAL = 1000
"""Services that the limits are about."""
SLACK = 1.2
"""A gate is the mean of its runs times this."""
LIBRARIES = ("aiohttp", "kopf", "kubernetes", "msgspec", "pydantic", "uvloop")


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

    def of(self, run: Applied | Run) -> float | None:
        """The figure in its unit; None of a run that has another."""
        value: float | None = getattr(run, self.name, None)
        return value / 1e6 if value is not None and self.unit is Unit.Megabytes else value

    @property
    def gated(self) -> bool:
        return self.unit is not Unit.Writes


ROWS = (
    Row("applied_seconds", "first create → last child", Unit.Seconds, 60),
    Row("applied_cpu", "operator's CPU for that", Unit.Seconds),
    Row("applied_peak", "RSS at its peak in that", Unit.Megabytes, 150),
    Row("fill_seconds", "… while controllers run", Unit.Seconds),
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
    """Load average before each run: other programs that ran meanwhile are in the seconds."""
    applied: tuple[Applied, ...]
    runs: tuple[Run, ...]
    floor: Floor | None = None
    """The same objects from a client that does nothing else."""
    cluster: tuple[str, ...] = RATED
    """What the cluster's own processes were started with."""

    @classmethod
    def of(
        cls,
        services: int,
        command: str,
        loads: Sequence[float],
        applied: Sequence[Applied],
        runs: Sequence[Run],
        floor: Floor | None = None,
    ) -> "Found":
        return cls(
            services, **provenance(command), loads=tuple(loads), applied=tuple(applied), runs=tuple(runs), floor=floor
        )

    @classmethod
    def load(cls, raw: dict[str, Any]) -> "Found":
        """One that was saved."""
        runs = (Run(**row | {"moments": tuple(Moment(**one) for one in row["moments"])}) for row in raw["runs"])
        return cls(
            **raw
            | {
                "loads": tuple(raw["loads"]),
                "applied": tuple(Applied(**row) for row in raw["applied"]),
                "runs": tuple(runs),
                "floor": Floor(**raw["floor"]) if raw["floor"] else None,
                "cluster": tuple(raw["cluster"]),
            }
        )

    def values(self, row: Row) -> list[float]:
        """A figure in each run that has it."""
        return [value for run in (*self.applied, *self.runs) if (value := row.of(run)) is not None]

    def mean(self, row: Row) -> float:
        """Of a figure over the runs; of writes the most, since no run may exceed them."""
        values = self.values(row)
        return max(values) if row.unit is Unit.Writes else statistics.mean(values)


def provenance(command: str) -> dict[str, Any]:
    """What was measured here and now is made with."""
    day, flags = datetime.now(UTC).date().isoformat(), (*RATED, *TUNED)
    return {"command": command, "date": day, "machine": _machine(), "versions": _versions(), "cluster": flags}


def table(found: Found, gates: dict[str, Any]) -> str:
    """A line a figure: mean, range, what is promised, the gate."""
    gated = gates.get("gates", {}).get(str(found.services), {})
    lines = [
        f"{found.services} services, {counted(found)}, load before {', '.join(f'{load:.1f}' for load in found.loads)}"
    ]
    for row in ROWS:
        mean = found.mean(row)
        gate = f"gate {gated[row.name]:g}" if row.name in gated else ""
        lines.append(
            f"  {row.what:34} {mean:8.1f} {row.unit:6} {spread(found, row):16} {promised(found, row):8} {gate}".rstrip()
        )
    if found.floor is not None:
        lines.append(
            f"  {'… of a bare client (the floor)':34} {found.floor.fill_seconds:8.1f} s      {times_floor(found)}"
        )
    parts = found.runs[-1].cpu
    lines.append("  CPU s of the others: " + ", ".join(f"{name} {seconds:.0f}" for name, seconds in parts.items()))
    return "\n".join(lines)


def counted(found: Found) -> str:
    """How many runs there are, in words."""
    return f"{len(found.runs)} run" + "s" * (len(found.runs) > 1)


def spread(found: Found, row: Row) -> str:
    """From the least to the most of several runs."""
    values = found.values(row)
    return f"{min(values):.1f} to {max(values):.1f}" if len(values) > 1 and row.gated else ""


def promised(found: Found, row: Row) -> str:
    """What a figure may be at most, in words; empty where nothing is promised."""
    limit = _limit(row, found.services)
    return f"≤ {limit:g}" if limit is not None else ""


def times_floor(found: Found) -> str:
    """What the operator takes of what a client takes that does nothing else."""
    mean = statistics.mean(run.fill_seconds for run in found.runs)
    assert found.floor is not None
    return f"{mean / found.floor.fill_seconds:.2f} times the floor"


def exceeded(founds: Sequence[Found], gates: dict[str, Any]) -> Iterator[str]:
    """What was promised and does not hold, and what is worse than its gate, in words."""
    for found in founds:
        for row in ROWS:
            limit, value = _limit(row, found.services), found.mean(row)
            gate = gates.get("gates", {}).get(str(found.services), {}).get(row.name)
            for bound, why in ((limit, "promised"), (gate, "the gate")):
                if bound is not None and value > bound:
                    yield f"{found.services} services: {row.what}: {value:.1f} {row.unit}, {why} is {bound:g}"


def _breaks(row: Row, services: int, value: float) -> bool:
    limit = _limit(row, services)
    return limit is not None and value > limit


def _limit(row: Row, services: int) -> float | None:
    return row.limit if row.always or services <= USUAL else None


def save(founds: Sequence[Found], file: Path) -> None:
    """Write the results; those of other numbers of services stay."""
    kept = json.loads(file.read_text()) if file.exists() else {}
    kept |= {str(found.services): asdict(found) for found in founds}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(dict(sorted(kept.items(), key=lambda item: int(item[0]))), indent=1) + "\n")


def incomplete(file: Path) -> Path:
    """Where the results of a series stand until it is complete; those of an earlier one stay in `file` till then."""
    return file.with_suffix(".incomplete.json")


def load(file: Path) -> list[Found]:
    """The results that were saved."""
    return [Found.load(raw) for raw in json.loads(file.read_text()).values()]


def load_gates() -> dict[str, Any]:
    """The gates, or none."""
    return json.loads(GATES.read_text()) if GATES.exists() else {}


def set_gates(founds: Sequence[Found]) -> None:
    """Make gates of these runs. A figure that breaks its promise has none: the promise stands, broken."""
    gates = load_gates() or {"rule": f"mean of the runs × {SLACK}", "runs": {}, "gates": {}}
    for found in founds:
        key = str(found.services)
        gates["runs"][key] = {
            "results": str(RESULTS), "runs": len(found.applied), "command": found.command, "date": found.date,
            "machine": found.machine, "loads": found.loads,
        }  # fmt: skip
        gates["gates"][key] = {
            row.name: round(SLACK * mean, 1)
            for row in ROWS
            if row.gated and not _breaks(row, found.services, mean := found.mean(row))
        }
    GATES.write_text(json.dumps(gates, indent=1) + "\n")


def _machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} threads, kernel {platform.release()}"


def _versions() -> dict[str, str]:
    tools = {name: golang.BY_NAME[name].version.rpartition(" ")[2] for name in ("kube-apiserver", "etcd", "kwok")}
    return {
        "graphpod": version("graphpod"),
        "python": platform.python_version(),
        **{name: version(name) for name in LIBRARIES},
        **tools,
    }
