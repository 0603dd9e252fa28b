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
    tree: Path,
    config: Path,
    log: Path,
    module: str,
    seconds: float = START_SECONDS,
    **environment: str,
) -> Iterator[tuple[int, str]]:
    """Process id and URL of a tree's front that is ready in so many seconds. `module` runs it, in this environment."""
    given = filter(None, [os.environ.get("PYTHONPATH")])
    paths = os.pathsep.join([*map(str, (tree / "policy", tree / "runtime", ROOT)), *given])
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(config)],
            stdout=output, stderr=subprocess.STDOUT, env=os.environ | {"PYTHONPATH": paths} | environment,
        )  # fmt: skip
    try:
        limit = time.monotonic() + seconds
        while "ready: " not in log.read_text():
            if time.monotonic() > limit or process.poll() is not None:
                raise RuntimeError(f"the front did not start:\n{log.read_text()}")
            time.sleep(0.05)
        found = re.search(r"listening: http (\S+),", log.read_text())
        assert found
        yield process.pid, f"http://{found[1]}"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
