"""What five times as many services cost, us and a bare client: `python -m benchmarks.operator_scale.growth`.

A machine that others use too is now faster and now slower, for minutes: times that are divided by each other are
measured one after another, the smaller number before the larger and after it. That is one run; a promise is about the
median of three.

The API server alone takes more than five times as long for five times as many: each time it gives a Service an address
it counts, twice, all that it has given (`Allocator.Used` in Kubernetes 1.36). How much that is, two things show: a
client that does nothing but write the same objects, and the same API server with the allocator of before, which counts
nothing. It can be had where the server emulates an older version, which is measured by itself, too.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from benchmarks.operator_scale import report
from benchmarks.operator_scale.bed import RATED, TUNED, compiled
from benchmarks.operator_scale.floor import Floor, floor
from benchmarks.operator_scale.measure import Applied, applied
from tests.clusters import cluster_name

RESULTS = Path("benchmarks/results/operator_growth.json")
TIMES = 5
RUNS = 3
"""Runs whose median a promise is about."""
MOST_CPU = 5.4
"""The most of the operator's own CPU time that TIMES as many services may take, in times of the smaller number."""
T = TypeVar("T", Applied, Floor)


class Server(StrEnum):
    """How the API server keeps the addresses that it gives Services."""

    AsItComes = "as_it_comes"
    Emulating = "emulating"
    """As it comes, and every feature gate as in the last version that lets one choose."""
    Bitmap = "bitmap"
    """The same with the allocator that Kubernetes had until 1.32."""

    @property
    def flags(self) -> tuple[str, ...]:
        """What the API server is started with for that."""
        return _FLAGS[self]

    @property
    def most(self) -> float | None:
        """The most wall-clock time that TIMES as many services may take there, in times of the smaller number; None
        where nothing is promised: what is measured there explains the others."""
        return _MOST[self]

    @property
    def what(self) -> str:
        """The server, as a sentence's subject."""
        return _WHAT[self]


_EMULATED = "--emulated-version=1.33"
_FLAGS: dict[Server, tuple[str, ...]] = {
    Server.AsItComes: (),
    Server.Emulating: (_EMULATED,),
    Server.Bitmap: (_EMULATED, "--feature-gates=MultiCIDRServiceAllocator=false"),
}
_MOST: dict[Server, float | None] = {Server.AsItComes: 6.0, Server.Emulating: None, Server.Bitmap: 5.5}
_WHAT = {
    Server.AsItComes: "the API server as it comes",
    Server.Emulating: "an API server that emulates an older one",
    Server.Bitmap: "one that emulates and counts no addresses",
}


@dataclass(frozen=True)
class Stage:
    """One number of services, planned and applied by the operator and written by a bare client."""

    load: float
    """Load average before the operator's run."""
    applied: Applied
    floor: Floor

    @property
    def services(self) -> int:
        return self.applied.services


@dataclass(frozen=True)
class Growth:
    """The smaller number of services, TIMES as many, and the smaller number again."""

    before: Stage
    many: Stage
    after: Stage

    @property
    def stages(self) -> tuple[Stage, Stage, Stage]:
        return self.before, self.many, self.after

    @property
    def times(self) -> float:
        """How many times as long the operator takes."""
        return _ratio(*(stage.applied.applied_seconds for stage in self.stages))

    @property
    def cpu_times(self) -> float:
        """How many times as much CPU time the operator takes."""
        return _ratio(*(stage.applied.applied_cpu for stage in self.stages))

    @property
    def floor_times(self) -> float:
        """How many times as long a bare client takes."""
        return _ratio(*(stage.floor.fill_seconds for stage in self.stages))

    @classmethod
    def load(cls, raw: dict[str, Any]) -> "Growth":
        """One that was saved."""
        return cls(
            *(
                Stage(stage["load"], Applied(**stage["applied"]), Floor(**stage["floor"]))
                for stage in (raw["before"], raw["many"], raw["after"])
            )
        )


@dataclass(frozen=True)
class Runs:
    """All runs with one API server. Times are medians over them."""

    server: Server
    runs: tuple[Growth, ...]

    @property
    def times(self) -> float:
        return median(run.times for run in self.runs)

    @property
    def cpu_times(self) -> float:
        return median(run.cpu_times for run in self.runs)

    @property
    def floor_times(self) -> float:
        return median(run.floor_times for run in self.runs)

    @property
    def holds(self) -> bool | None:
        """Whether the operator grows no faster than promised; None where nothing is promised, or runs are missing."""
        most = self.server.most
        if most is None or len(self.runs) < RUNS:
            return None
        return self.times <= most and self.cpu_times <= MOST_CPU

    @property
    def breaks(self) -> bool:
        """Whether something is promised that is not shown to hold."""
        return self.server.most is not None and not self.holds

    def __str__(self) -> str:
        first, count = self.runs[0], len(self.runs)
        counted = "one run" if count == 1 else f"the median of {count} runs"
        found = (
            f"{first.many.services} services take {self.times:.2f} times as long as {first.before.services} and "
            f"{self.cpu_times:.2f} times the operator's CPU time, a bare client {self.floor_times:.2f} times as long "
            f"({counted})"
        )
        if self.server.most is None:
            return f"{found}: nothing is promised here"
        promise = f"promised is at most {self.server.most:g} and {MOST_CPU:g}, by the median of {RUNS} runs"
        if self.holds is None:
            return f"{found}: {promise}, {RUNS - count} of which are still to be made"
        return f"{found}: {promise}, which {'holds' if self.holds else 'does not hold'}"


def load(raw: dict[str, Any]) -> dict[Server, Runs]:
    """What a command found that was saved, by the API server."""
    return {server: Runs(server, tuple(map(Growth.load, raw["growth"][server]["runs"]))) for server in Server}


def measured(count: int, name: str, server: Server) -> Growth:
    """Of `count` services and TIMES as many, each on a fresh cluster."""
    counts, loads = (count, TIMES * count, count), list[float]()

    def by_operator(services: int, folder: Path) -> Applied:
        loads.append(round(os.getloadavg()[0], 1))
        return applied(services, name, folder, server.flags)

    def by_client(services: int, folder: Path) -> Floor:
        return floor(services, name, folder, server.flags, alone=True)

    alone = [_announced(services, "from the operator", by_operator) for services in counts]
    bare = [_announced(services, "from a bare client", by_client) for services in counts]
    return Growth(*map(Stage, loads, alone, bare))


def main() -> int:
    options = _options()
    print(f"controller manager and scheduler: {' '.join(RATED)}; {' '.join(TUNED)}", flush=True)
    runs: dict[Server, list[Growth]] = {server: [] for server in Server}
    with compiled():
        for number in range(options.runs):
            for server in Server:
                # What only explains the others is measured once.
                if number == 0 or server.most is not None:
                    print(f"run {number + 1}: {server.what} {' '.join(server.flags)}".rstrip(), flush=True)
                    runs[server].append(measured(options.services, cluster_name(options.name), server))
    found = {server: Runs(server, tuple(made)) for server, made in runs.items()}
    for server, growth in found.items():
        print(f"{server.what}: {growth}")
    if options.json is not None:
        made = report.provenance(" ".join(["python -m benchmarks.operator_scale.growth", *sys.argv[1:]]))
        growths = {
            server: {"flags": server.flags, "runs": [asdict(run) for run in growth.runs]}
            for server, growth in found.items()
        }
        options.json.write_text(json.dumps(made | {"growth": growths}, indent=1) + "\n")
    return int(options.gate and any(growth.breaks for growth in found.values()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.operator_scale.growth", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--services", type=int, default=report.USUAL, metavar="N", help="the smaller number, default: %(default)s"
    )
    parser.add_argument(
        "--json", type=Path, nargs="?", const=RESULTS, metavar="FILE", help=f"write results ({RESULTS})"
    )
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N", help="default: %(default)s, which gates need")
    parser.add_argument("--gate", action="store_true", help="fail when a promise is not shown to hold")
    parser.add_argument("--name", default="opscale", help="of the testbed, default: %(default)s")
    return parser.parse_args()


def _announced(services: int, whose: str, measure: Callable[[int, Path], T]) -> T:
    print(f"{services} services {whose}", flush=True)
    with tempfile.TemporaryDirectory(prefix="operator-scale-") as folder:
        found = measure(services, Path(folder))
    seconds = found.applied_seconds if isinstance(found, Applied) else found.fill_seconds
    print(f"  last child after {seconds:.1f} s", flush=True)
    return found


def _ratio(before: float, many: float, after: float) -> float:
    return many / ((before + after) / 2)


if __name__ == "__main__":
    sys.exit(main())
