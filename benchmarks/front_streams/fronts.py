"""Fronts of this tree and of earlier commits, each a process of its own over an engine without a model."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0


def checked_out(commit: str, folder: Path) -> Path:
    """The front and what it imports, as they were."""
    folder.mkdir()
    archive = subprocess.run(
        ["git", "archive", commit, "policy", "runtime"], cwd=ROOT, check=True, stdout=subprocess.PIPE
    )
    subprocess.run(["tar", "-x"], cwd=folder, input=archive.stdout, check=True)
    return folder


@contextlib.contextmanager
def running(
    tree: Path, config: Path, pace: int, folder: Path, log_name: str = "front.log", marks: str = ""
) -> Iterator[tuple[int, str]]:
    """Process id and URL of a tree's front that is ready; its engine makes so many tokens a second in all, 0: at once.
    `marks`: the file that marks on the way to a first token are appended to; empty: none are made.
    """
    log = folder / log_name
    paths = os.pathsep.join(map(str, (tree / "policy", tree / "runtime", ROOT)))
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.front_streams.front", str(config)],
            stdout=output, stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONPATH": paths, "GRAPHPOD_TOKENS_PER_SECOND": str(pace), "GRAPHPOD_MARKS": marks},
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
