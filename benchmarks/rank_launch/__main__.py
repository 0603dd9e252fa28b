"""`python -m benchmarks.rank_launch`: microseconds of the host from an admitted request to the launch of its prompt on
each rank, by part; requests in a row, and each after a second of quiet.

The engines of all numbers of ranks, and with `--against COMMIT` those of two commits, run at the same time and are
asked in turn, some requests each, over the wire, without a front. Ratios of their medians are what counts, and on a
busy machine those of tenth percentiles. `--awake`: seconds that loops look for work before they sleep, as on a machine
with GPUs and processors to spare; 0: they sleep at once.
"""

import argparse
import contextlib
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.front_streams.fronts import ROOT, checked_out
from benchmarks.random_engine import provenance
from benchmarks.rank_launch.marks import AWAKE, FIRST, FOLDER, OTHERS
from benchmarks.rank_launch.model import write
from graphpod_policy import Device, EngineConfig
from graphpod_runtime.api.local_config import LocalOptions, add_local_options, local_config
from graphpod_runtime.base.arguments import memory
from graphpod_runtime.wire.messages import (
    Arriving,
    CounterSnapshot,
    Fatal,
    Finished,
    Submit,
    Warmup,
    decode_events,
    encode,
)
from graphpod_runtime.wire.socket import BEAT, WIRE, FrontEnd

START_SECONDS, ANSWER_SECONDS, WARM = 600.0, 60.0, 10
BLOCK = 10
"""Requests to an engine before the next one is asked."""
NOW, BEFORE = "now", "before"
OF_LEAST = ("rank 0 came", "launch last", "lag", "token")
"""Figures with a tenth percentile: what others do on the machine only adds to them."""


class Asked:
    """A process of an engine, and what it was asked: (kind, began, ended) of each request."""

    def __init__(self, config: EngineConfig, tree: Path, folder: Path, awake: float) -> None:
        folder.mkdir()
        self._folder, self._ends, self.ranks = folder, FrontEnd(folder, WIRE), config.features.ranks
        self._heart, self.requests = FrontEnd(folder, BEAT), list[tuple[str, int, int]]()
        path = folder / "config.json"
        path.write_bytes(config.canonical())
        (marks := folder / "marks").mkdir()
        given = filter(None, [os.environ.get("PYTHONPATH")])
        paths = os.pathsep.join([*map(str, (tree / "policy", tree / "runtime", ROOT)), *given])
        words = [sys.executable, "-m", "benchmarks.rank_launch.engine", "--config", str(path), "--wire", str(folder)]
        environment = os.environ | {"PYTHONPATH": paths, FOLDER: str(marks), AWAKE: str(awake)}
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env=environment
            )
        self._until(lambda event: isinstance(event, Warmup) and event.report["state"] == "Ready", START_SECONDS)

    def ask(self, kind: str, prompt: list[int], announced: float = 0.0) -> None:
        """Returns when it is answered, by one token. `announced`: seconds before it that the engine hears of it."""
        self._heard(0.0)
        assert self._ends.line is not None
        if announced:
            self._ends.line.send(encode([Arriving()]))
            time.sleep(announced)
        name, began = f"{kind} {len(self.requests)}", time.perf_counter_ns()
        self._ends.line.send(encode([Submit(name, prompt, 1, ignore_eos=True)]))
        self._until(lambda event: isinstance(event, Finished) and event.id == name, ANSWER_SECONDS)
        self.requests.append((kind, began, time.perf_counter_ns()))

    def _until(self, seen: Any, seconds: float) -> None:
        limit = time.monotonic() + seconds
        while not any(seen(event) for event in self._heard(0.1)):
            if time.monotonic() > limit or self._process.poll() is not None:
                raise RuntimeError(f"it did not come:\n{(self._folder / 'log').read_text()[-4000:]}")

    def _heard(self, seconds: float) -> list[object]:
        if (heart := self._heart.line) is not None:
            heart.take(1024)
        if (line := self._ends.line) is None:
            time.sleep(seconds)
            return []
        frames = line.take(1024)
        if not frames and seconds:
            line.wait(seconds)
            frames = line.take(1024)
        events = [event for frame in frames for event in decode_events(frame)]
        for event in events:
            if isinstance(event, Fatal) or (isinstance(event, Finished) and event.message):
                raise RuntimeError(f"it failed: {event}")
        return [event for event in events if not isinstance(event, CounterSnapshot)]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def marks(self, rank: int) -> list[tuple[int, str]]:
        """In the order of time."""
        lines = (self._folder / "marks" / str(rank)).read_text().split("\n")
        return sorted((int(at), name) for name, at in (line.split() for line in lines if line))


def parts_of(asked: Asked, kind: str) -> dict[str, Any]:
    """Medians, in microseconds, of the requests of a kind. `launch` is the time from the admission to the launch, of
    the first rank and of the last; `lag` is their difference; `token` the time from the front's write to its answer."""
    found: dict[str, list[float]] = {}
    each = [asked.marks(rank) for rank in range(asked.ranks)]
    for which, began, ended in asked.requests:
        if which != kind:
            continue
        # A prompt may take several passes: the first one counts.
        times = [{name: at for at, name in reversed(marks) if began <= at <= ended} for marks in each]
        planned, admitted = times[0]["planned"], times[0]["admitted"]
        for rank, (own, names) in enumerate(zip(times, [FIRST, *[OTHERS] * (asked.ranks - 1)], strict=True)):
            before = began if rank == 0 else planned
            for name in names:
                if (at := own.get(name)) is not None:
                    found.setdefault(f"rank {rank} {name}", []).append((at - before) / 1000)
                    before = at
        launched = [own["launched"] for own in times]
        found.setdefault("launch first", []).append((launched[0] - admitted) / 1000)
        found.setdefault("launch last", []).append((max(launched) - admitted) / 1000)
        found.setdefault("lag", []).append((max(launched) - launched[0]) / 1000)
        found.setdefault("token", []).append((ended - began) / 1000)
    medians = {name: round(statistics.median(values), 1) for name, values in found.items()}
    return medians | {f"{name} p10": round(sorted(found[name])[len(found[name]) // 10], 1) for name in OF_LEAST}


def main() -> int:
    """The command."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="gp-ranks-") as scratch, contextlib.ExitStack() as until:
        folder = Path(scratch)
        trees = {BEFORE: checked_out(options.against, folder / "tree")} if options.against else {}
        engines = dict(_engines(options, {**trees, NOW: ROOT}, folder, until))
        chance, kinds = random.Random(1), {"warm": (WARM, 0.0, 0.0), "row": (options.rounds, options.pause, 0.0)}
        if options.quiet_rounds:
            kinds["quiet"] = options.quiet_rounds, options.quiet, 0.0
        if options.announced and options.quiet_rounds:
            kinds["announced"] = options.quiet_rounds, options.quiet, options.announced
        for kind, (rounds, pause, announced) in kinds.items():
            for done in range(0, rounds, BLOCK):
                print(f"{kind}: {done} of {rounds}", file=sys.stderr, flush=True)
                for (tree, _), asked in engines.items():
                    if announced and tree == BEFORE:
                        continue  # it may be of a commit that knows no such notice
                    for _ in range(min(BLOCK, rounds - done)):
                        time.sleep(pause)
                        prompt = [chance.randrange(options.vocabulary) for _ in range(options.tokens)]
                        asked.ask(kind, prompt, announced)
        rows = [
            {"tree": tree, "ranks": ranks, "kind": kind} | parts_of(asked, kind)
            for kind in kinds if kind != "warm"
            for (tree, ranks), asked in engines.items()
            if any(each[0] == kind for each in asked.requests)
        ]  # fmt: skip
    ratios = _ratios(rows)
    for row in rows:
        _print(row)
    for name, ratio in ratios.items():
        print(f"{name:60}{ratio:8.2f}")
    if options.json:
        said = {"command": shlex.join(["python", "-m", "benchmarks.rank_launch", *sys.argv[1:]]), "rows": rows}
        said |= {"ratios": ratios, "cpus": len(os.sched_getaffinity(0)), "awake": options.awake}
        options.json.write_text(json.dumps(said | provenance(Device(options.on)), indent=1) + "\n")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.rank_launch", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--model", type=Path, help="its folder; without it, a tiny one with random weights")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], metavar="N")
    parser.add_argument("--tokens", type=int, default=2048, help="of a prompt; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=100, help="requests in a row; default: %(default)s")
    parser.add_argument("--pause", type=float, default=0.003, help="seconds before each; default: %(default)s")
    parser.add_argument("--quiet-rounds", type=int, default=20, help="requests after a quiet; default: %(default)s")
    parser.add_argument("--quiet", type=float, default=1.0, help="seconds of it; default: %(default)s")
    parser.add_argument(
        "--announced",
        type=float,
        default=0.0,
        help="seconds before a request after a quiet that engines hear of it, in as many rounds again; default: never",
    )
    parser.add_argument("--awake", type=float, default=0.02, help="seconds; default: %(default)s")
    parser.add_argument("--kv-cache", type=memory, default=64 << 20, metavar="SIZE", help="default: 64Mi")
    parser.add_argument("--against", metavar="COMMIT", help="a commit to compare with")
    parser.add_argument("--json", type=Path, metavar="FILE")
    add_local_options(parser.add_argument_group("engine"))
    parser.set_defaults(max_model_len=4096, max_batch=2)
    return parser.parse_args()


def _engines(
    options: argparse.Namespace, trees: dict[str, Path], folder: Path, until: contextlib.ExitStack
) -> Iterator[tuple[tuple[str, int], Asked]]:
    """By tree and number of ranks; each is Ready."""
    options.model = options.model or write(folder)
    shape = json.loads((options.model / "config.json").read_bytes())
    options.vocabulary = int(shape.get("text_config", shape)["vocab_size"])
    for ranks in options.ranks:
        own = replace(LocalOptions.of(options), tensor_parallel=ranks)
        config = replace(local_config(own), kv_cache_bytes=options.kv_cache)
        options.on = config.features.device
        for tree, path in trees.items():
            print(f"start: {ranks} ranks, {tree}", file=sys.stderr, flush=True)
            asked = Asked(config, path, folder / f"{tree}{ranks}", options.awake)
            until.callback(asked.close)
            yield (tree, ranks), asked


def _ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Of the launch at the last rank: more ranks to the fewest, now to before, and announced requests to others."""
    found, least = {}, min(row["ranks"] for row in rows)
    for figure in ("launch last", "launch last p10"):
        by = {(row["kind"], row["tree"], row["ranks"]): row[figure] for row in rows}
        for (kind, tree, ranks), value in by.items():
            if ranks != least:
                found[f"{figure}, {kind}, {tree}: {ranks} ranks to {least}"] = round(value / by[kind, tree, least], 3)
            if kind == "announced":
                others = by["quiet", tree, ranks]
                found[f"{figure}, {ranks} ranks, {tree}: announced to quiet"] = round(value / others, 3)
            if tree == NOW and (before := by.get((kind, BEFORE, ranks))):
                found[f"{figure}, {kind}, {ranks} ranks: now to before"] = round(value / before, 3)
    return found


def _print(row: dict[str, Any]) -> None:
    print(f"{row['kind']}, {row['ranks']} ranks, {row['tree']} (µs)")
    for name, value in row.items():
        if name in ("kind", "ranks", "tree"):
            continue
        rank, _, part = name.removeprefix("rank ").partition(" ")
        what = (FIRST if rank == "0" else OTHERS).get(part, "") if rank.isdigit() else ""
        print(f"  {name:18}{what:66}{value:10}")


if __name__ == "__main__":
    sys.exit(main())
