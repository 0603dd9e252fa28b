"""The Deployment and its rollout. `pod.template` renders its pods."""

from __future__ import annotations

from graphpod_operator.kube.resources import Resource
from graphpod_operator.render.owner import Body, Owner
from graphpod_operator.render.pod import template
from graphpod_operator.render.pod.container import start_ceiling
from graphpod_operator.render.workload.rolling import rolling
from graphpod_policy import Plan

HISTORY = 2
"""Earlier configurations that a rollback finds as they were."""
DEADLINE_SLACK = 300
"""Seconds for image pull and scheduling on top of the longest start, before a rollout counts as stuck."""
UNPINNED = ("replicas", "strategy")
"""The fields of a Deployment's spec that scale and roll its pods; the others are of its rendering."""


def deployment(owner: Owner, pinned: Body) -> Body:
    """The Deployment of a service, around what `rendered` made for it once. It always rolls, and has no number of pods
    yet.
    """
    strategy = {"type": "RollingUpdate", "rollingUpdate": rolling(owner.spec)}
    return owner.child(Resource.Deployment, owner.name, owner.workload_labels, spec={**pinned, "strategy": strategy})


def rendered(owner: Owner, plan: Plan, config_hash: str) -> Body:
    """The part of the Deployment's spec that does not change while its pods are to stay: all but what scales and
    rolls them.
    """
    return {
        "revisionHistoryLimit": HISTORY,
        "progressDeadlineSeconds": _deadline(owner, plan),
        "selector": {"matchLabels": owner.selector},
        "template": template.rendered(owner, plan, config_hash),
    }


def reconfigured(pinned: Body, owner: Owner, plan: Plan, config_hash: str) -> Body:
    """What `rendered` made once, for another configuration of the same engine: its name, and the longest start."""
    again = template.reconfigured(pinned["template"], owner, plan, config_hash)
    return {**pinned, "progressDeadlineSeconds": _deadline(owner, plan), "template": again}


def _deadline(owner: Owner, plan: Plan) -> int:
    """Seconds without progress after which a rollout counts as stuck."""
    return start_ceiling(owner.spec, plan) + DEADLINE_SLACK
