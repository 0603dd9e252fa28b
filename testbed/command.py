"""Short-lived programs: run, check, and carry their words into the error."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from testbed.errors import TestbedError

# What we run ends with us: a kubectl that outlived a killed `up` would write into a folder that `down` has deleted.
TIED = ("setpriv", "--pdeathsig", "TERM", "--")


def run(
    argv: Sequence[str | Path],
    *,
    input: str | None = None,
    timeout: float = 60.0,
    env: dict[str, str] | None = None,
    remedy: str = "",
) -> str:
    """Standard output of `argv`. Raises `TestbedError` with its standard error on failure, absence or timeout (s)."""
    words = [str(a) for a in argv]
    shown = " ".join(words)
    program = shutil.which(words[0])
    if program is None:
        raise TestbedError(f"{words[0]} is not installed: run `python3 -m testbed build`, it installs it")
    try:
        tied = [*TIED, program, *words[1:]]
        done = subprocess.run(tied, input=input, text=True, capture_output=True, timeout=timeout, env=env)
    except subprocess.TimeoutExpired as e:
        said = e.stderr.decode(errors="replace") if isinstance(e.stderr, bytes) else (e.stderr or "")
        raise TestbedError(f"`{shown}` did not end within {timeout:.0f} s\n{said.strip()}") from e
    if done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip() or "(it said nothing)"
        raise TestbedError(
            f"`{shown}` failed with status {done.returncode}:\n{said}" + (f"\n{remedy}" if remedy else "")
        )
    return done.stdout
