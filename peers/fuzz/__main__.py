"""`python -m peers.fuzz`: all attacks on our engine with real weights; exit status 1 if one leaves something behind.

Two rounds of the same: what the first leaves are caches that fill once, and the second must leave no more.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from demo.weights import model_folder
from graphpod_runtime.bench.serve.drive.own_engine import OwnEngine
from peers.__main__ import ENGINE
from peers.fuzz.attacks import Wrong, break_off_streams, hold_connections, post_all, send_slowly
from peers.fuzz.bodies import drawn
from peers.fuzz.leaks import held, wait_until_idle
from peers.result import provenance

RESULTS = Path("benchmarks/results/fuzz_api.json")
NAME = "smollm2"
WORDS = ("--name", NAME, "--max-model-len", "128", "--max-batch", "8", *ENGINE)
BODY = {"model": NAME, "prompt": "once upon a time", "max_tokens": 100, "ignore_eos": True}
ROUNDS = 2
CHECKS = Path("tests/unit/runtime/front/schemathesis.toml")
ANSWER_SECONDS = 120
"""In which each of schemathesis' cases must be answered."""
FILES, MEMORY = 8, 64 << 20
"""Open files and bytes by which the second round may grow."""


def main(arguments: list[str] | None = None) -> int:
    """Runs what the arguments ask for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m peers.fuzz", description="attack our server")
    parser.add_argument("--bodies", type=int, default=10_000, help="mutated bodies (default: %(default)s)")
    parser.add_argument("--streams", type=int, default=400, help="streams that break off (default: %(default)s)")
    parser.add_argument("--connections", type=int, default=2000, help="at one time (default: %(default)s)")
    parser.add_argument("--examples", type=int, default=50, help="bodies that schemathesis draws for each operation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    began = time.monotonic()
    weights = model_folder(lambda line: print(line, file=sys.stderr))
    rounds: list[dict[str, Any]] = []
    with OwnEngine(["serve", "--model", str(weights), *WORDS]) as engine:
        engine.ready()
        with urllib.request.urlopen(f"{engine.url}/openapi.json") as answer:
            document = json.load(answer)
        try:
            for number in range(ROUNDS):
                rounds.append(_round(engine, document, options, options.seed + number))
                print(json.dumps(rounds[-1]), flush=True)
        except Wrong as wrong:
            print(f"failed: {wrong}")
            return 1
        by_schema = _by_schema(engine.url, options)
        engine.check()
    grown = {name: rounds[-1][name] - rounds[0][name] for name in ("files", "memory")}
    result = {"provenance": provenance("make fuzz-api", time.monotonic() - began), "rounds": rounds, "grown": grown}
    result["schemathesis"] = by_schema
    options.json.write_text(json.dumps(result, indent=1) + "\n")
    failed = [name for name, bound in (("files", FILES), ("memory", MEMORY)) if grown[name] > bound]
    right = by_schema and by_schema.get("passed") == by_schema.get("generated") and not by_schema.get("errored")
    failed += [] if right else [f"schemathesis: {by_schema}"]
    failed += [f"left: {one['left']}" for one in rounds if one["left"]]
    print(f"failed: {failed}" if failed else f"nothing left; {options.json}")
    return 1 if failed else 0


def _by_schema(url: str, options: argparse.Namespace) -> dict[str, int]:
    """What schemathesis counts at the end of its run: cases generated, passed, with a fault, and without an answer."""
    command = [str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(CHECKS.resolve()), "run"]
    words = ["--max-examples", str(options.examples), "--seed", str(options.seed), "--no-color"]
    words += ["--request-timeout", str(ANSWER_SECONDS)]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*command, f"{url}/openapi.json", *words], capture_output=True, text=True, cwd=folder, check=False
        )
    if done.returncode:
        print(done.stdout[-6000:])
    return counts(done.stdout)


def counts(output: str) -> dict[str, int]:
    """The last numbers of schemathesis' output; empty where it has none."""
    found = re.search(r"Test cases:\n\s*(.*)", output)
    line = found[1] if found else ""
    return {word: int(count) for count, word in re.findall(r"(\d+) (generated|passed|found|errored)", line)}


def _round(engine: OwnEngine, document: dict[str, Any], options: argparse.Namespace, seed: int) -> dict[str, Any]:
    statuses = post_all(engine.url, document, drawn(seed, options.bodies // ROUNDS, NAME))
    break_off_streams(engine.url, BODY, options.streams // ROUNDS)
    slow = send_slowly(engine.url, BODY, 200)
    answers = hold_connections(engine.url, options.connections)
    left = wait_until_idle(engine.url)
    now = held(engine.pid)
    return {
        "bodies": dict(sorted(statuses.items())), "streams": options.streams // ROUNDS, "slow": slow,
        "connections": dict(answers), "left": left, "files": now.files, "memory": now.memory,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
