"""The PodDisruptionBudget: a drain takes one replica at a time."""

from __future__ import annotations

from graphpod_operator.kube.resources import Resource
from graphpod_operator.render.owner import Body, Owner

FLOOR = 2
"""Replicas from which on there is a budget: that of one pod would hold up a drain for ever, or mean nothing."""


def disruption_budget(owner: Owner, freely: bool) -> Body:
    """The budget of a service. `freely`: pods that are not ready may be evicted whatever the others do. A pod that has
    failed a start fails again and again, and pods that sleep are never ready: they would hold up the drain of a node
    for ever. A pod that starts for the first time may not be evicted so.
    Where a group is a replica, it counts all of its pods: one that is evicted takes the others with it, and nothing
    else is evicted until they are back.
    """
    return owner.child(
        Resource.PodDisruptionBudget,
        owner.name,
        spec={
            "maxUnavailable": 1,
            "selector": owner.pod_selector,
            "unhealthyPodEvictionPolicy": "AlwaysAllow" if freely else "IfHealthyBudget",
        },
    )
