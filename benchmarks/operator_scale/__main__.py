"""The operator with many services on a simulated cluster: `python -m benchmarks.operator_scale`.

Each run has a cluster of its own: etcd, API server, controller manager, scheduler, simulated nodes, stub engines, and
the operator as a process next to them. What takes wall-clock time is about the whole machine; the operator's own share
is in CPU seconds. Exit status 1 with --gate when something is worse than promised or than its gate.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.operator_scale import page, picture, report
from benchmarks.operator_scale.bed import RATED, TUNED, compiled
from benchmarks.operator_scale.floor import floor as measured_floor
from benchmarks.operator_scale.measure import QUIET_SECONDS, Applied, Run, applied, run
from benchmarks.operator_scale.report import RESULTS, Found
from tests.clusters import cluster_name

QUICK_SERVICES = 50
QUICK_SECONDS = 10.0  # of quiet


def main() -> int:
    options = _options()
    command = " ".join(["python -m benchmarks.operator_scale", *sys.argv[1:]])
    gates, founds = report.load_gates(), []
    print(f"controller manager and scheduler: {' '.join(RATED)}; {' '.join(TUNED)}", flush=True)
    for services in [QUICK_SERVICES] if options.quick else options.services:
        founds.append(_found(services, command, options))
        print(report.table(founds[-1], gates), flush=True)
    if options.png is not None:
        picture.draw(founds, options.png)
        print(f"drawn to {options.png}")
    if options.set_gates:
        report.set_gates(founds)
        print(f"gates written to {report.GATES}")
    if options.page:
        page.PAGE.write_text(page.page())
        print(f"written to {page.PAGE}")
    # gates that are to be replaced stop nothing
    worse = list(report.exceeded(founds, {} if options.set_gates else gates))
    gated = ", and no gate is exceeded" if gates and not options.set_gates else ""
    print("\n".join(worse) if worse else f"all that is promised holds{gated}")
    return int(options.gate and bool(worse))


def _found(services: int, command: str, options: argparse.Namespace) -> Found:
    """The runs of one number of services."""
    quiet = QUICK_SECONDS if options.quick else QUIET_SECONDS
    floor, loads, alone, runs = None, list[float](), list[Applied](), list[Run]()
    with compiled():
        if options.floor:
            print(f"{services} services from a bare client: the floor", flush=True)
            with tempfile.TemporaryDirectory(prefix="operator-scale-") as folder:
                floor = measured_floor(services, cluster_name(options.name), Path(folder))
        for number in range(1, options.runs + 1):
            loads.append(round(os.getloadavg()[0], 1))
            began = time.monotonic()
            print(f"{services} services, run {number} of {options.runs}, load {loads[-1]}", flush=True)
            print("  planned and applied", flush=True)
            with tempfile.TemporaryDirectory(prefix="operator-scale-") as folder:
                alone.append(applied(services, cluster_name(options.name), Path(folder)))
            print(f"  last child after {alone[-1].applied_seconds:.1f} s", flush=True)
            print("  and while controllers run, until Ready", flush=True)
            with tempfile.TemporaryDirectory(prefix="operator-scale-") as folder:
                runs.append(run(services, cluster_name(options.name), Path(folder), quiet))
            print(f"  run took {time.monotonic() - began:.0f} s", flush=True)
            found = Found.of(services, command, loads, alone, runs, floor)
            if options.json is not None:  # after each: a later one may fail
                report.save([found], report.incomplete(options.json))
    if options.json is not None:
        report.save([found], options.json)
        report.incomplete(options.json).unlink()
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operator_scale", description=__doc__.splitlines()[0])
    parser.add_argument("--services", type=int, nargs="+", default=[1000], metavar="N", help="default: 1000")
    parser.add_argument("--runs", type=int, default=1, metavar="N", help="of each number, default: %(default)s")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_SERVICES} services and a shorter quiet")
    parser.add_argument(
        "--json", type=Path, nargs="?", const=RESULTS, metavar="FILE", help=f"write results ({RESULTS})"
    )
    parser.add_argument(
        "--floor", action="store_true", help="also the same objects from a client that does nothing else"
    )
    parser.add_argument("--page", action="store_true", help=f"write {page.PAGE} from the results")
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw objects over time")
    parser.add_argument("--gate", action="store_true", help="fail when promises or gates do not hold")
    parser.add_argument("--set-gates", action="store_true", help=f"make gates of these runs ({report.GATES})")
    parser.add_argument("--name", default="opscale", help="of the testbed, default: %(default)s")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
