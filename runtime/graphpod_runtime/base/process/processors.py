"""How many processors this process may keep busy."""

import os
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Microseconds of processors in a period, or `max`, and the period's length."""


def processors(quota: Path | None = None) -> float:
    """Those that it may run on, and no more than the `quota` of its container (QUOTA): a process that uses it up is
    stopped, wherever it is.
    """
    allowed = len(os.sched_getaffinity(0))
    try:
        used, period = (quota or QUOTA).read_text().split()
        return min(allowed, int(used) / int(period))
    except (OSError, ValueError):  # no quota
        return allowed


def whole_processors() -> int:
    """Threads that can run at the same time, at least one."""
    return max(1, int(processors()))
