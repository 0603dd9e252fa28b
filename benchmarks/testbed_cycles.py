"""A testbed up and down, many times: nothing of it stays on the machine, and the machine has as much as before.

`make bench-testbed` runs every level. After each cycle the machine is compared with the one before the first; at level
node each cycle runs a pod on every node. Writes JSON. Exit status 1 when anything stayed.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from testbed import Cluster, Level
from testbed.host import snapshot
from testbed.host.snapshot import Machine
from testbed.nodes.pause import IMAGE

RESULTS = Path("benchmarks/results")
SETTLE_LIMIT = 10.0  # s; the kernel buries namespaces and links in its own time
ENDS = 5  # cycles at either end whose medians are compared
CGROUPS = Path("/proc/cgroups")  # gone in cgroup v2's latest kernels


@dataclass(frozen=True)
class Resources:
    """What the whole machine uses, other programs included."""

    open_files: int
    own_files: int  # descriptors of this very program, which brings the testbed up
    available: int  # bytes
    slab: int  # bytes, the kernel's own objects
    cgroups: int  # dying ones included


@dataclass(frozen=True)
class Cycle:
    up: float  # s
    down: float  # s
    settled: float  # s after `down` until the machine was as before
    left: list[str]
    resources: Resources


def resources() -> Resources:
    os.sync()  # memory that only waits for the disk is no memory lost
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    memory = {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines}
    cgroups = [line.split() for line in CGROUPS.read_text().splitlines()[1:]] if CGROUPS.exists() else []
    return Resources(
        open_files=int(Path("/proc/sys/fs/file-nr").read_text().split()[0]),
        own_files=len(list(Path("/proc/self/fd").iterdir())),
        available=memory["MemAvailable"],
        slab=memory["Slab"],
        cgroups=sum(int(words[2]) for words in cgroups),
    )


def cycle(cluster: Cluster, before: Machine) -> Cycle:
    began = time.monotonic()
    cluster.up(quiet)
    up = time.monotonic() - began
    if cluster.level is Level.NODE:
        run_pods(cluster)
    began = time.monotonic()
    cluster.down(quiet)
    down = time.monotonic() - began
    began = time.monotonic()
    while (left := snapshot.difference(before, snapshot.take([cluster.name]))) and settling(began):
        time.sleep(0.1)
    return Cycle(up, down, time.monotonic() - began, left, resources())


def quiet(_: str) -> None:
    """The steps are in the testbed's own record; here a line a cycle is enough."""


def settling(began: float) -> bool:
    return time.monotonic() - began < SETTLE_LIMIT


def run_pods(cluster: Cluster) -> None:
    """One on every node, so that sandboxes, their links, cgroups and mounts are there to be left behind."""
    label = {"app": "cycle"}
    pod = {"metadata": {"labels": label}, "spec": {"containers": [{"name": "pause", "image": IMAGE}]}}
    spec = {"selector": {"matchLabels": label}, "template": pod}
    daemons = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "cycle"}, "spec": spec}
    cluster.kubectl("create", "-f", "-", input=json.dumps(daemons))
    cluster.kubectl("rollout", "status", "daemonset/cycle", "--timeout=60s", timeout=70)


def line(n: int, total: int, c: Cycle) -> str:
    r = c.resources
    left = ", ".join(c.left) or "nothing"
    return (
        f"{n:>3}/{total}  up {c.up:5.1f} s  down {c.down:4.1f} s  open files {r.open_files:6}  own {r.own_files:3}  "
        f"available {r.available / 1e9:5.2f} GB  slab {r.slab / 1e6:4.0f} MB  cgroups {r.cgroups:4}  left: {left}"
    )


def trend(values: Sequence[float]) -> tuple[float, float]:
    """Medians of the first and of the last cycles."""
    ends = max(1, min(ENDS, len(values) // 2))
    return statistics.median(values[:ends]), statistics.median(values[-ends:])


def summary(cycles: Sequence[Cycle], what: str) -> str:
    ups, downs = [c.up for c in cycles], [c.down for c in cycles]
    left = sum(bool(c.left) for c in cycles)
    files = trend([c.resources.open_files for c in cycles])
    own = trend([c.resources.own_files for c in cycles])
    memory = trend([c.resources.available / 1e9 for c in cycles])
    slab = trend([c.resources.slab / 1e6 for c in cycles])
    return "\n".join(
        [
            f"{len(cycles)} cycles of {what}: something stayed after {left} of them",
            f"  up    {statistics.median(ups):.1f} s median, {min(ups):.1f} to {max(ups):.1f}",
            f"  down  {statistics.median(downs):.1f} s median, {min(downs):.1f} to {max(downs):.1f}",
            "  first cycles → last cycles, medians, of the whole machine:",
            f"  open files {files[0]:.0f} → {files[1]:.0f}, this program's {own[0]:.0f} → {own[1]:.0f}",
            f"  available {memory[0]:.2f} → {memory[1]:.2f} GB, slab {slab[0]:.0f} → {slab[1]:.0f} MB",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.testbed_cycles", description=__doc__.splitlines()[0])
    parser.add_argument("--level", type=Level, choices=list(Level), default=Level.API, help="default: %(default)s")
    parser.add_argument("--nodes", type=int, help="default: the level's own")
    parser.add_argument("--cycles", type=int, default=3, metavar="N", help="default: %(default)s")
    parser.add_argument("--name", default="cycles", help="of the testbed, default: %(default)s")
    options = parser.parse_args()
    cluster = Cluster(options.name, options.level, options.nodes)
    cluster.down(quiet)
    what = f"{cluster.level}" + (f" --nodes {cluster.nodes}" if cluster.nodes else "")
    before = snapshot.take([cluster.name])
    print(
        f"{options.cycles} cycles of {what}; the machine as it is: {sum(map(len, before.values()))} entries", flush=True
    )
    cycles = []
    for n in range(1, options.cycles + 1):  # one that does not come up stays as it is, to be looked at
        cycles.append(cycle(cluster, before))
        print(line(n, options.cycles, cycles[-1]), flush=True)
    print(summary(cycles, what))
    write(cluster, cycles)
    return int(any(c.left for c in cycles))


def write(cluster: Cluster, cycles: Sequence[Cycle]) -> None:
    out = RESULTS / f"testbed_cycles_{cluster.level}.json"
    command = f"python -m benchmarks.testbed_cycles --level {cluster.level} --cycles {len(cycles)}"
    result = {
        "command": command + (f" --nodes {cluster.nodes}" if cluster.nodes else ""),
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} threads, kernel {platform.release()}",
        "left": sum(bool(c.left) for c in cycles),
        "medianUpSeconds": round(statistics.median(c.up for c in cycles), 2),
        "medianDownSeconds": round(statistics.median(c.down for c in cycles), 2),
        "cycles": [asdict(c) for c in cycles],
    }
    RESULTS.mkdir(exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"written to {out}")


if __name__ == "__main__":
    sys.exit(main())
