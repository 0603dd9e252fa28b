"""The PodDisruptionBudget: a drain takes one replica at a time."""

from __future__ import annotations

from graphpod_operator.kube.resources import Resource
from graphpod_operator.render.owner import Body, Owner

FLOOR = 2
"""Replicas from which on there is a budget: that of one pod would hold up a drain for ever, or mean nothing."""


def disruption_budget(owner: Owner, failed_start: bool) -> Body:
    """The budget of a service. A pod that has failed a start may be evicted whatever the others do: a capture that
    fails again and again would hold up the drain of its node for ever. One that starts for the first time may not.
    """
    return owner.child(
        Resource.PodDisruptionBudget,
        owner.name,
        spec={
            "maxUnavailable": 1,
            "selector": {"matchLabels": owner.selector},
            "unhealthyPodEvictionPolicy": "AlwaysAllow" if failed_start else "IfHealthyBudget",
        },
    )
