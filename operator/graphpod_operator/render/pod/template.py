"""The pod template, restricted. `container` makes its one container, `additions` what `spec.podTemplate` adds."""

from __future__ import annotations

from graphpod_operator.api import quantity
from graphpod_operator.api.names import ENGINE_TYPE, HASH_ANNOTATION, TEMPLATE_ANNOTATION, WORKER
from graphpod_operator.kube.field_ownership import fingerprint
from graphpod_operator.render.owner import Body, Owner
from graphpod_operator.render.pod import additions, api_key, placement, tls, weights
from graphpod_operator.render.pod.container import container, patience, without_empty
from graphpod_operator.render.pod.security import pod_security
from graphpod_policy import Plan

ACCEPT_SECONDS = 5
"""The front still accepts this long after SIGTERM."""
EXIT_SECONDS = 10
"""Given to the processes to end after the drain."""


def rendered(owner: Owner, plan: Plan, config_hash: str) -> Body:
    """The template, with a fingerprint of itself as an annotation."""
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
    return template


def reconfigured(pinned: Body, owner: Owner, plan: Plan, config_hash: str) -> Body:
    """What `rendered` made once, for another configuration of the same engine: its name, and the longest start."""
    metadata, pod = pinned["metadata"], pinned["spec"]
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
    return template


def of_worker(leader: Body) -> Body:
    """The template of the other pods of a group, from the leader's. They have no ports that anybody asks: that their
    graphs are proved is in the leader's readiness, and their part ends with the leader's engine.
    """
    metadata, pod = leader["metadata"], leader["spec"]
    asked = ("ports", "startupProbe", "readinessProbe", "livenessProbe")
    engine = {name: part for name, part in pod["containers"][0].items() if name not in asked}
    labels = {name: value for name, value in metadata["labels"].items() if name != ENGINE_TYPE[0]}
    return {
        "metadata": {**metadata, "labels": {**labels, "app.kubernetes.io/name": WORKER}},
        "spec": {**pod, "containers": [engine, *pod["containers"][1:]]},
    }


def _pod(owner: Owner, plan: Plan, config_hash: str) -> Body:
    spec = owner.spec
    return without_empty(
        {
            "serviceAccountName": owner.name,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": ACCEPT_SECONDS + spec.rollout.drain_seconds + EXIT_SECONDS,
            # Where the engine is process 1 of a container that has just begun, the kernel drops a SIGTERM. A group goes
            # as soon as a container has run again, and would wait for the whole grace period.
            "shareProcessNamespace": True if spec.parallelism.nodes > 1 else None,
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
        *weights.volumes(owner),
        {"name": "tmp", "emptyDir": {"sizeLimit": quantity.canonical(resources.scratch)}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": quantity.canonical(resources.shared_memory)}},
        *api_key.volumes(owner.spec),
        *tls.volumes(owner.spec),
        *map(additions.volume, owner.spec.pod_template.volumes),
    ]
