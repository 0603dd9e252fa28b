"""`python -m benchmarks.front_streams`: CPU time a streamed token of this tree's front, and of an earlier commit's.

Both fronts run in turn on the same machine, so their ratio is what counts. Prints a table; `--json FILE` keeps it.
"""

import argparse
import json
import os
import shlex
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.front_streams import model
from benchmarks.front_streams.fronts import ROOT, checked_out, running
from benchmarks.front_streams.readers import read

BEFORE = "53cba82"
"""The last commit in which each token was an event of its own."""


@dataclass(frozen=True, slots=True)
class Cost:
    """One run. `cpu_us`: microseconds of the front's CPU time a token; `per_second`: tokens that clients read."""

    cpu_us: float
    per_second: float
    tokens_per_event: float


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="benchmarks.front_streams", description=__doc__.split("\n")[0])
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=1500, help="of each stream")
    parser.add_argument("--pace", type=int, nargs="+", default=[20_000, 0], help="tokens a second in all; 0: no limit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", default=BEFORE, help="the commit to compare with; '' for none")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="graphpod-front-") as scratch:
        folder = Path(scratch)
        trees = {"after": ROOT}
        if options.against:
            trees = {"before": checked_out(options.against, folder / "before")} | trees
        config = model.write(folder)
        for pace in options.pace:
            costs: dict[str, list[Cost]] = {name: [] for name in trees}
            for _ in range(options.rounds):
                for name, tree in trees.items():
                    costs[name].append(_measured(tree, config, pace, options.streams, options.tokens, folder))
            medians = {name: _median(runs) for name, runs in costs.items()}
            rows.append({"pace": pace} | {name: asdict(cost) for name, cost in medians.items()})
            _print(pace, medians)
    if options.json:
        what = {"streams": options.streams, "tokens": options.tokens, "rounds": options.rounds}
        machine = {"cpus": os.cpu_count(), "python": sys.version.split()[0], "against": options.against}
        machine |= {"command": shlex.join(["python", "-m", "benchmarks.front_streams", *sys.argv[1:]])}
        machine |= {"date": datetime.now(UTC).date().isoformat()}
        options.json.write_text(json.dumps(what | machine | {"rows": rows}, indent=1) + "\n")
    return 0


def _print(pace: int, medians: dict[str, Cost]) -> None:
    print(f"pace {f'{pace} tokens/s' if pace else 'without limit'}")
    for name, cost in medians.items():
        print(
            f"  {name:7} {cost.cpu_us:7.1f} µs CPU a token  {cost.per_second:8.0f} tokens/s  "
            f"{cost.tokens_per_event:5.2f} tokens an event"
        )
    if "before" in medians:
        print(f"  before / after: {medians['before'].cpu_us / medians['after'].cpu_us:.2f}", flush=True)


def _median(runs: list[Cost]) -> Cost:
    return Cost(*(round(statistics.median(getattr(run, name) for run in runs), 2) for name in Cost.__slots__))


def _measured(tree: Path, config: Path, pace: int, streams: int, tokens: int, folder: Path) -> Cost:
    module, log = "benchmarks.front_streams.front", folder / "front.log"
    with running(tree, config, log, module, GRAPHPOD_TOKENS_PER_SECOND=str(pace)) as (pid, url):
        read(url, model.NAME, streams, 50)  # imports and caches
        before = _cpu_seconds(pid)
        found = read(url, model.NAME, streams, tokens)
        used = _cpu_seconds(pid) - before
    assert found.tokens == streams * tokens, found
    return Cost(used / found.tokens * 1e6, found.tokens / found.seconds, found.tokens / found.events)


def _cpu_seconds(pid: int) -> float:
    """User and system time of the process, its children excluded."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
