"""How long a rank's loop without work looks for some before it sleeps: one that has slept launches its first pass in
twice the time. The first rank looks for commands, the others look for orders.
"""

from graphpod_policy import Device, FeatureConfig
from graphpod_runtime.base.process.processors import processors

AWAKE_SECONDS = 0.02
REHEARSAL_SECONDS = 0.002
"""A loop that looks for work does a part of a pass this often: what it does not do leaves the processor's caches."""
SPARE, EACH = 2, 2
"""Processors with which loops may be kept awake. Each loop has one, and so has the driver of its device; the front has
one, and one is left for all others."""


def awake_seconds(features: FeatureConfig) -> float:
    """Of the loop of a rank of this machine; 0: it sleeps at once."""
    needed = SPARE + EACH * features.ranks_of_node
    return AWAKE_SECONDS if features.device is Device.Cuda and processors() >= needed else 0.0
