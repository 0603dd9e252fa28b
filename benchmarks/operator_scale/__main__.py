"""The operator with many services on a simulated cluster: `python -m benchmarks.operator_scale`.

Each run has a cluster of its own: etcd, API server, controller manager, scheduler, simulated nodes, stub engines, and
the operator as a process beside them. What takes wall-clock time is about the whole machine; the operator's own share
is told in CPU seconds. Exit status 1 with --gate when something is worse than promised or than its gate.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.operator_scale import picture, report
from benchmarks.operator_scale.bed import RATED, compiled
from benchmarks.operator_scale.measure import QUIET_SECONDS, run
from benchmarks.operator_scale.report import RESULTS, Found
from tests.clusters import cluster_name

QUICK_SERVICES = 50
QUICK_SECONDS = 10.0  # of quiet


def main() -> int:
    options = _options()
    sizes = [QUICK_SERVICES] if options.quick else options.services
    quiet = QUICK_SECONDS if options.quick else QUIET_SECONDS
    command = " ".join(["python -m benchmarks.operator_scale", *sys.argv[1:]])
    gates, founds = report.load_gates(), []
    print(f"controller manager and scheduler: {' '.join(RATED)}", flush=True)
    for services in sizes:
        loads, runs = [], []
        for number in range(1, options.runs + 1):
            loads.append(round(os.getloadavg()[0], 1))
            print(f"{services} services, run {number} of {options.runs}, load {loads[-1]}", flush=True)
            with compiled(), tempfile.TemporaryDirectory(prefix="operator-scale-") as folder:
                runs.append(run(services, cluster_name(options.name), Path(folder), quiet))
        founds.append(Found.of(services, command, loads, runs))
        print(report.table(founds[-1], gates), flush=True)
    if options.json is not None:
        report.save(founds, options.json)
        print(f"written to {options.json}")
    if options.png is not None:
        picture.draw(founds, options.png)
        print(f"drawn to {options.png}")
    if options.set_gates:
        report.set_gates(founds)
        print(f"gates written to {report.GATES}")
    worse = list(report.exceeded(founds, gates))
    print("\n".join(worse) if worse else "all that is promised holds" + (", and no gate is exceeded" if gates else ""))
    return int(options.gate and bool(worse))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operator_scale", description=__doc__.splitlines()[0])
    parser.add_argument("--services", type=int, nargs="+", default=[1000], metavar="N", help="default: 1000")
    parser.add_argument("--runs", type=int, default=1, metavar="N", help="of each number, default: %(default)s")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_SERVICES} services and a shorter quiet")
    parser.add_argument(
        "--json", type=Path, nargs="?", const=RESULTS, metavar="FILE", help=f"write results ({RESULTS})"
    )
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw objects over time")
    parser.add_argument("--gate", action="store_true", help="fail when promises or gates do not hold")
    parser.add_argument("--set-gates", action="store_true", help=f"make gates of these runs ({report.GATES})")
    parser.add_argument("--name", default="opscale", help="of the testbed, default: %(default)s")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
