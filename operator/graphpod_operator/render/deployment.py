"""The Deployment and its rollout. `pod.template` renders its pods."""

from __future__ import annotations

from graphpod_operator.api.lifecycle import RolloutStrategy
from graphpod_operator.api.names import CAPTURE_FAILURES_ANNOTATION, REVISION_ANNOTATION
from graphpod_operator.api.spec import Spec
from graphpod_operator.intent.resolver_input import wants_gpu
from graphpod_operator.kube.resources import Resource
from graphpod_operator.render import scaling
from graphpod_operator.render.owner import Body, Owner
from graphpod_operator.render.pod import template
from graphpod_operator.render.pod.container import start_ceiling
from graphpod_policy import Plan

HISTORY = 2
"""Earlier configurations that a rollback finds as they were."""
DEADLINE_SLACK = 300
"""Seconds for image pull and scheduling on top of the longest start, before a rollout counts as stuck."""
UNPINNED = ("replicas", "strategy")
"""The fields of a Deployment's spec that scale and roll its pods; the others are of its rendering."""


def deployment(owner: Owner, pinned: Body, revision: str, deaths: str | None = None) -> Body:
    """The Deployment of a service, around what `workload` rendered for it once, under the name of that rendering.
    Always rolling. `deaths` records starts that failed in a capture: it is outside the template, so
    that it restarts no pod.
    """
    spec = owner.spec
    body = owner.child(
        Resource.Deployment,
        owner.name,
        owner.workload_labels,
        spec={
            **pinned,
            **({"replicas": count} if (count := scaling.replicas(spec)) is not None else {}),
            "strategy": {"type": "RollingUpdate", "rollingUpdate": _rolling(spec)},
        },
    )
    body["metadata"]["annotations"] = {REVISION_ANNOTATION: revision}
    if deaths is not None:
        body["metadata"]["annotations"][CAPTURE_FAILURES_ANNOTATION] = deaths
    return body


def workload(owner: Owner, plan: Plan, config_hash: str) -> Body:
    """The part of the Deployment's spec that does not change while its pods are to stay: all but what scales and
    rolls them.
    """
    return {
        "revisionHistoryLimit": HISTORY,
        "progressDeadlineSeconds": _deadline(owner.spec, plan),
        "selector": {"matchLabels": owner.selector},
        "template": template.rendered(owner, plan, config_hash),
    }


def reconfigured(pinned: Body, owner: Owner, plan: Plan, config_hash: str) -> Body:
    """What `workload` rendered once, for another configuration of the same engine: its name, and the longest start."""
    again = template.reconfigured(pinned["template"], owner, plan, config_hash)
    return {**pinned, "progressDeadlineSeconds": _deadline(owner.spec, plan), "template": again}


def _rolling(spec: Spec) -> dict[str, int]:
    default = RolloutStrategy.Replace if wants_gpu(spec) else RolloutStrategy.Surge
    if (spec.rollout.strategy or default) is RolloutStrategy.Replace:
        return {"maxSurge": 0, "maxUnavailable": spec.rollout.max_unavailable or 1}
    return {"maxSurge": 1, "maxUnavailable": 0}


def _deadline(spec: Spec, plan: Plan) -> int:
    """Seconds without progress after which a rollout counts as stuck."""
    return start_ceiling(spec, plan) + DEADLINE_SLACK
