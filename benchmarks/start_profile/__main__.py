"""Where the seconds of a start go.

`python -m benchmarks.start_profile --model FOLDER [--serve '--max-model-len 4096 --max-batch 64'] --json FILE`. Starts
`graphpod-engine serve` three times, as its user would, and prints the stages of these starts. One more start is
profiled: of it come the log's times, and for each stage the calls that took its time, by samples of all threads every
10 ms, which a thread of the front and one of the engine take. They take the interpreter from the start as well, which
on some hosts is seconds longer by that: so how long a start takes is what the others say. `--starts 0` profiles one
start, with the caches that are there.
"""

import argparse
import http.client
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.start_profile import sampler
from benchmarks.start_profile.stages import Stretch, lines, stretches
from benchmarks.start_profile.tree import profiles
from graphpod_runtime.bench.serve.drive.own_engine import OwnEngine

NOTES_SECONDS = 30.0
"""For the samplers to write what they have, a process that has many threads at work."""
PACKAGES = ("graphpod-runtime", "torch", "triton", "flashinfer-python")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.start_profile", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--model", type=Path, required=True, help="folder with *.safetensors")
    parser.add_argument("--serve", default="", metavar="OPTIONS", help="more options of graphpod-engine serve")
    parser.add_argument("--starts", type=int, default=3, help="before the profiled one; default: %(default)s")
    parser.add_argument("--json", type=Path, nargs="?", const=Path("start_profile.json"), metavar="FILE")
    options = parser.parse_args()
    words = ["serve", "--model", str(options.model), *shlex.split(options.serve)]
    starts = [started(words, profiled=at == options.starts) for at in range(options.starts + 1)]
    content = {"command": " ".join(("python -m benchmarks.start_profile", *sys.argv[1:])), **provenance()}
    content["starts"] = starts
    if options.json is not None:
        options.json.write_text(json.dumps(content, indent=1) + "\n")


def started(words: list[str], *, profiled: bool) -> dict[str, Any]:
    """One start, printed; ended once it is ready."""
    with tempfile.TemporaryDirectory(prefix="graphpod-start-") as name:
        folder = Path(name)
        began = time.time()
        with OwnEngine(words, environment(folder) if profiled else None) as engine:
            seconds = engine.ready()
            ready = time.time()
            report = warmup(engine.admin)
            log = engine.log
            notes = written(folder) if profiled else {}
    stages = {stage["name"]: stage["seconds"] for stage in report["stages"]}
    how = " under the profiler" if profiled else ""
    print(f"\nready after {seconds:.1f} s{how}; of it in stages {sum(stages.values()):.1f} s")
    for stage, took in stages.items():
        print(f"  {stage:<16}{took:7.3f} s")
    found = {"readySeconds": round(seconds, 2), "profiled": profiled, "stages": stages, "compiled": report["compiled"]}
    if not profiled:
        return found
    print("\nthe log, by seconds from the start of the process:")
    said = [f"{line.time - began:7.2f}  {line.logger}: {line.words}" for line in lines(log)]
    print("\n".join(said))
    shown = [each for process in ("front", "engine") for each in shown_of(notes, process, log, stages, began, ready)]
    return found | {"log": said, "profile": shown}


def shown_of(
    notes: dict[str, Any], process: str, log: str, stages: dict[str, float], began: float, ready: float
) -> Iterator[dict[str, Any]]:
    """The profiles of `process`, printed. Of the front, which waits for the engine, only what comes before that."""
    parts = stretches(log, stages, began, ready)
    if process == "front":
        first = notes["engine"]["samples"][0][0]
        parts = [Stretch("until the engine's process began", began, first)]
    print(f"\n{process}:")
    for profile in profiles(notes[process], parts):
        print("\n".join(profile.text()))
        yield {"process": process, **profile.as_dict()}


def environment(folder: Path) -> dict[str, str]:
    """In which front and engine are sampled; notes come to `folder`."""
    shutil.copy(sampler.__file__, folder / "sitecustomize.py")
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return {"PYTHONPATH": path, sampler.SAMPLES: str(folder)}


def written(folder: Path) -> dict[str, Any]:
    """What the samplers of both processes write when they are asked to stop."""
    (folder / sampler.STOP).touch()
    until, found = time.monotonic() + NOTES_SECONDS, {}
    for name in sampler.PROCESSES.values():
        path = folder / f"{name}.json"
        while not path.exists():
            if time.monotonic() > until:
                raise SystemExit(f"the sampler of the {name} wrote nothing; is there another sitecustomize?")
            time.sleep(sampler.INTERVAL)
        found[name] = json.loads(path.read_text())
    return found


def warmup(admin: str) -> dict[str, Any]:
    """What the start has reported."""
    connection = http.client.HTTPConnection(admin, timeout=5)
    try:
        connection.request("GET", "/warmup")
        report: dict[str, Any] = json.loads(connection.getresponse().read())
        return report
    finally:
        connection.close()


def provenance() -> dict[str, Any]:
    """Where the figures come from, without an import of torch: that would fill caches for the starts."""
    versions = {}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    gpu = None
    with suppress(OSError, subprocess.CalledProcessError):
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        gpu = subprocess.run(query, capture_output=True, check=True, text=True).stdout.splitlines()[0]
    python = sys.version.split()[0]
    return {"gpu": gpu, "versions": versions, "python": python, "date": f"{datetime.now(UTC):%Y-%m-%d}"}


if __name__ == "__main__":
    main()
