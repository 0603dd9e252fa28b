"""The Deployment, its rollout and its pods, restricted. `pod.container` makes the one container in them."""

from __future__ import annotations

from graphpod_operator.api import quantity
from graphpod_operator.api.lifecycle import RolloutStrategy
from graphpod_operator.api.names import (
    CAPTURE_FAILURES_ANNOTATION,
    ENGINE_TYPE,
    HASH_ANNOTATION,
    REVISION_ANNOTATION,
    TEMPLATE_ANNOTATION,
)
from graphpod_operator.api.spec import Spec
from graphpod_operator.kube.field_ownership import fingerprint
from graphpod_operator.kube.resources import Resource
from graphpod_operator.render import scaling
from graphpod_operator.render.owner import Body, Owner
from graphpod_operator.render.pod import api_key, placement, pod_template, tls
from graphpod_operator.render.pod.container import container, patience, start_ceiling, without_empty
from graphpod_operator.render.pod.security import pod_security
from graphpod_operator.resolve.resolver_input import wants_gpu
from graphpod_policy import Plan

ACCEPT_SECONDS = 5
"""The front still accepts this long after SIGTERM."""
EXIT_SECONDS = 10
"""Given to the processes to end after the drain."""
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
    spec = owner.spec
    annotations = {**spec.pod_template.annotations, **placement.marks(owner), HASH_ANNOTATION: config_hash}
    template = {
        "metadata": {
            "labels": {ENGINE_TYPE[0]: ENGINE_TYPE[1], **spec.pod_template.labels, **owner.workload_labels},
            "annotations": annotations,
        },
        "spec": _pod(owner, plan, config_hash),
    }
    annotations[TEMPLATE_ANNOTATION] = fingerprint(template)
    return {
        "revisionHistoryLimit": HISTORY,
        "progressDeadlineSeconds": _deadline(spec, plan),
        "selector": {"matchLabels": owner.selector},
        "template": template,
    }


def reconfigured(pinned: Body, owner: Owner, plan: Plan, config_hash: str) -> Body:
    """What `workload` rendered once, for another configuration of the same engine: its name, and the longest start."""
    metadata, pod = pinned["template"]["metadata"], pinned["template"]["spec"]
    engine = {**pod["containers"][0]}
    engine["startupProbe"] = {
        **engine["startupProbe"],
        "failureThreshold": patience(owner.spec, plan),
    }
    config = {"name": "config", "configMap": {"name": owner.config_name(config_hash)}}
    annotations = {**metadata["annotations"], HASH_ANNOTATION: config_hash}
    annotations.pop(TEMPLATE_ANNOTATION, None)
    template = {
        "metadata": {**metadata, "annotations": annotations},
        "spec": {
            **pod,
            "containers": [engine, *pod["containers"][1:]],
            "volumes": [config if volume["name"] == "config" else volume for volume in pod["volumes"]],
        },
    }
    annotations[TEMPLATE_ANNOTATION] = fingerprint(template)
    return {**pinned, "progressDeadlineSeconds": _deadline(owner.spec, plan), "template": template}


def _rolling(spec: Spec) -> dict[str, int]:
    default = RolloutStrategy.Replace if wants_gpu(spec) else RolloutStrategy.Surge
    if (spec.rollout.strategy or default) is RolloutStrategy.Replace:
        return {"maxSurge": 0, "maxUnavailable": spec.rollout.max_unavailable or 1}
    return {"maxSurge": 1, "maxUnavailable": 0}


def _deadline(spec: Spec, plan: Plan) -> int:
    """Seconds without progress after which a rollout counts as stuck."""
    return start_ceiling(spec, plan) + DEADLINE_SLACK


def _pod(owner: Owner, plan: Plan, config_hash: str) -> Body:
    spec = owner.spec
    return without_empty(
        {
            "serviceAccountName": owner.name,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": ACCEPT_SECONDS + spec.rollout.drain_seconds + EXIT_SECONDS,
            "securityContext": pod_security(owner),
            "containers": [container(owner, plan)],
            "volumes": _volumes(owner, config_hash),
            "imagePullSecrets": [{"name": secret.name} for secret in spec.engine.image_pull_secrets],
            **placement.fields(owner),
        }
    )


def _volumes(owner: Owner, config_hash: str) -> list[Body]:
    resources = owner.spec.resources
    return [
        {"name": "config", "configMap": {"name": owner.config_name(config_hash)}},
        {"name": "model", "persistentVolumeClaim": {"claimName": owner.claim, "readOnly": True}},
        {"name": "tmp", "emptyDir": {"sizeLimit": quantity.canonical(resources.scratch)}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": quantity.canonical(resources.shared_memory)}},
        *api_key.volumes(owner.spec),
        *tls.volumes(owner.spec),
        *map(pod_template.volume, owner.spec.pod_template.volumes),
    ]
