"""What a machine says of itself, without torch."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def cpu() -> str:
    """Its model."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))


def gpus(*fields: str) -> list[str]:
    """The fields of nvidia-smi's query, a line for each GPU; empty where nvidia-smi is not there or fails."""
    try:
        return subprocess.run(
            ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return []


def installed(package: str) -> str | None:
    """The version of a package; None without it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
