"""`python -m benchmarks.front_streams`: CPU time a streamed token of this tree's front, and of an earlier commit's.

Both fronts run in turn on the same machine, so their ratio is what counts. Prints a table; `--json FILE` keeps it.
"""

import argparse
import contextlib
import json
import os
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.front_streams import model
from benchmarks.front_streams.readers import read

ROOT = Path(__file__).parents[2]
BEFORE = "53cba82"
"""The last commit in which each token was an event of its own."""
START_SECONDS = 60.0


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
            trees = {"before": _checked_out(options.against, folder / "before")} | trees
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


def _checked_out(commit: str, folder: Path) -> Path:
    """The front and what it imports, as they were."""
    folder.mkdir()
    archive = subprocess.run(
        ["git", "archive", commit, "policy", "runtime"], cwd=ROOT, check=True, stdout=subprocess.PIPE
    )
    subprocess.run(["tar", "-x"], cwd=folder, input=archive.stdout, check=True)
    return folder


def _measured(tree: Path, config: Path, pace: int, streams: int, tokens: int, folder: Path) -> Cost:
    with _front(tree, config, pace, folder) as (pid, url):
        read(url, model.NAME, streams, 50)  # imports and caches
        before = _cpu_seconds(pid)
        found = read(url, model.NAME, streams, tokens)
        used = _cpu_seconds(pid) - before
    assert found.tokens == streams * tokens, found
    return Cost(used / found.tokens * 1e6, found.tokens / found.seconds, found.tokens / found.events)


@contextlib.contextmanager
def _front(tree: Path, config: Path, pace: int, folder: Path) -> Iterator[tuple[int, str]]:
    log = folder / "front.log"
    paths = os.pathsep.join(map(str, (tree / "policy", tree / "runtime", ROOT)))
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.front_streams.front", str(config)],
            stdout=output, stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONPATH": paths, "GRAPHPOD_TOKENS_PER_SECOND": str(pace)},
        )  # fmt: skip
    try:
        limit = time.monotonic() + START_SECONDS
        while "ready: " not in log.read_text():
            if time.monotonic() > limit or process.poll() is not None:
                raise RuntimeError(f"the front did not start:\n{log.read_text()}")
            time.sleep(0.05)
        found = re.search(r"listening: http (\S+),", log.read_text())
        assert found
        yield process.pid, f"http://{found[1]}"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def _cpu_seconds(pid: int) -> float:
    """User and system time of the process, its children excluded."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
