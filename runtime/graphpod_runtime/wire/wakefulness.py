"""How long a rank's loop without work looks for some before it sleeps: one that has slept launches its first pass in
twice the time. The first rank looks for commands, the others look for orders.
"""

import os
from pathlib import Path

from graphpod_policy import Device, FeatureConfig

AWAKE_SECONDS = 0.02
REHEARSAL_SECONDS = 0.002
"""A loop that looks for work does a part of a pass this often: what it does not do leaves the processor's caches."""
SPARE, EACH = 2, 2
"""Processors with which loops may be kept awake. Each loop has one, and so has the driver of its device; the front has
one, and one is left for all others."""
QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Microseconds of processors in a period, or `max`, and the period's length."""


def awake_seconds(features: FeatureConfig) -> float:
    """Of the loop of a rank of this machine; 0: it sleeps at once."""
    needed = SPARE + EACH * features.ranks_of_node
    return AWAKE_SECONDS if features.device is Device.Cuda and processors(QUOTA) >= needed else 0.0


def processors(quota: Path) -> float:
    """That this process may keep busy. One that uses up the `quota` of its container is stopped in the middle of a
    pass."""
    allowed = len(os.sched_getaffinity(0))
    try:
        used, period = quota.read_text().split()
        return min(allowed, int(used) / int(period))
    except (OSError, ValueError):  # no quota
        return allowed
