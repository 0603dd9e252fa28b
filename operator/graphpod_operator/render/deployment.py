"""The Deployment: pods that run the engine, restricted, with a longest start that follows from spec and plan."""

from __future__ import annotations

import math
from typing import Any

from graphpod_operator.api import duration, quantity
from graphpod_operator.api.lifecycle import RolloutStrategy
from graphpod_operator.api.names import (
    CAPTURE_FAILURES_ANNOTATION,
    CONTAINER,
    HASH_ANNOTATION,
    REVISION_ANNOTATION,
    TEMPLATE_ANNOTATION,
)
from graphpod_operator.api.spec import Spec
from graphpod_operator.install.engine_images import Images
from graphpod_operator.kube.field_ownership import fingerprint
from graphpod_operator.kube.resources import Resource
from graphpod_operator.render import api_key, placement, pod_template, scaling
from graphpod_operator.render.config_map import KEY
from graphpod_operator.render.subject import Body, Subject
from graphpod_operator.resolve.engine_config import cpu_threads
from graphpod_operator.resolve.model_uri import MOUNT, ModelUri
from graphpod_operator.resolve.resolver_input import wants_gpu
from graphpod_policy import Plan

HTTP_PORT = 8000
ADMIN_PORT = 8001
CONFIG_DIR = "/etc/graphpod"
USER = 65532

STARTUP_PERIOD = 5
"""Seconds between two startup probes."""
ACCEPT_SECONDS = 5
"""The front still accepts this long after SIGTERM."""
EXIT_SECONDS = 10
"""Given to the processes to end after the drain."""
HISTORY = 2
"""Earlier configurations that a rollback finds as they were."""
DEADLINE_SLACK = 300
"""Seconds for image pull and scheduling on top of the longest start, before a rollout counts as stuck."""
LEAST_CEILING = 3600
"""Seconds that every start may take: the engine's own watchdog ends one that makes no progress, so this only ends one
whose watchdog is stuck, too.
"""
CEILING_FACTOR = 10
"""A start may take this multiple of its estimate: storage and processors are slower than any that was measured."""


UNPINNED = ("replicas", "strategy")
"""The fields of a Deployment's spec that scale and roll its pods; the others are of its rendering."""


def deployment(subject: Subject, pinned: Body, revision: str, deaths: str | None = None) -> Body:
    """The Deployment of a service, around what `workload` rendered for it once, under the name of that rendering.
    Always rolling. `deaths` is what is remembered of starts that died in a capture: it stands beside the template, so
    that it restarts nobody.
    """
    spec = subject.spec
    body = subject.child(
        Resource.Deployment,
        subject.name,
        subject.workload_labels,
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


def workload(subject: Subject, plan: Plan, config_hash: str, images: Images) -> Body:
    """The part of the Deployment's spec that does not change while its pods are to stay: all but what scales and
    rolls them.
    """
    spec = subject.spec
    annotations = {**spec.pod_template.annotations, **placement.marks(subject), HASH_ANNOTATION: config_hash}
    template = {
        "metadata": {
            "labels": {**spec.pod_template.labels, **subject.workload_labels},
            "annotations": annotations,
        },
        "spec": _pod(subject, plan, config_hash, images),
    }
    annotations[TEMPLATE_ANNOTATION] = fingerprint(template)
    return {
        "revisionHistoryLimit": HISTORY,
        "progressDeadlineSeconds": _deadline(spec, plan),
        "selector": {"matchLabels": subject.selector},
        "template": template,
    }


def reconfigured(pinned: Body, subject: Subject, plan: Plan, config_hash: str) -> Body:
    """What `workload` rendered once, for another configuration of the same engine: its name, and the longest start."""
    metadata, pod = pinned["template"]["metadata"], pinned["template"]["spec"]
    container = {**pod["containers"][0]}
    container["startupProbe"] = {
        **container["startupProbe"],
        "failureThreshold": _patience(subject.spec, plan),
    }
    config = {"name": "config", "configMap": {"name": subject.config_name(config_hash)}}
    annotations = {**metadata["annotations"], HASH_ANNOTATION: config_hash}
    annotations.pop(TEMPLATE_ANNOTATION, None)
    template = {
        "metadata": {**metadata, "annotations": annotations},
        "spec": {
            **pod,
            "containers": [container, *pod["containers"][1:]],
            "volumes": [config if volume["name"] == "config" else volume for volume in pod["volumes"]],
        },
    }
    annotations[TEMPLATE_ANNOTATION] = fingerprint(template)
    return {**pinned, "progressDeadlineSeconds": _deadline(subject.spec, plan), "template": template}


def _rolling(spec: Spec) -> dict[str, int]:
    default = RolloutStrategy.Replace if wants_gpu(spec) else RolloutStrategy.Surge
    if (spec.rollout.strategy or default) is RolloutStrategy.Replace:
        return {"maxSurge": 0, "maxUnavailable": spec.rollout.max_unavailable or 1}
    return {"maxSurge": 1, "maxUnavailable": 0}


def start_ceiling(spec: Spec, plan: Plan) -> int:
    """Seconds after which the kubelet ends a start, in whole minutes. Of spec and plan alone: no start that was seen
    counts (contract 14).
    """
    asked = spec.engine.start_timeout
    seconds = duration.seconds(asked) if asked else max(LEAST_CEILING, CEILING_FACTOR * plan.budget.start_seconds)
    return math.ceil(seconds / 60) * 60


def start_limit(pinned: Body) -> int:
    """Seconds after which the kubelet ends a start of what `workload` rendered."""
    probe = pinned["template"]["spec"]["containers"][0]["startupProbe"]
    limit: int = probe["periodSeconds"] * probe["failureThreshold"]
    return limit


def _deadline(spec: Spec, plan: Plan) -> int:
    """Seconds without progress after which a rollout counts as stuck."""
    return start_ceiling(spec, plan) + DEADLINE_SLACK


def _patience(spec: Spec, plan: Plan) -> int:
    """Failed startup probes that a pod survives."""
    return start_ceiling(spec, plan) // STARTUP_PERIOD


def _pod(subject: Subject, plan: Plan, config_hash: str, images: Images) -> Body:
    spec = subject.spec
    return _without_empty(
        {
            "serviceAccountName": subject.name,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": ACCEPT_SECONDS + spec.rollout.drain_seconds + EXIT_SECONDS,
            "securityContext": {
                "runAsNonRoot": True,
                **({"runAsUser": USER, "runAsGroup": USER, "fsGroup": USER} if subject.fixed_user else {}),
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [_container(spec, plan, images)],
            "volumes": _volumes(subject, config_hash),
            "imagePullSecrets": [{"name": secret.name} for secret in spec.engine.image_pull_secrets],
            **placement.fields(subject),
        }
    )


def _container(spec: Spec, plan: Plan, images: Images) -> Body:
    return _without_empty(
        {
            "name": CONTAINER,
            "image": images.of(spec),
            "imagePullPolicy": spec.engine.image_pull_policy.value,
            "command": ["graphpod-engine", "serve", "--config", f"{CONFIG_DIR}/{KEY}", *api_key.arguments(spec)],
            "env": _environment(spec),
            "ports": [
                {"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"},
                {"name": "admin", "containerPort": ADMIN_PORT, "protocol": "TCP"},
            ],
            "resources": _without_empty(
                {
                    "requests": _quantities(spec.resources.requests),
                    "limits": _quantities(spec.resources.limits),
                }
            ),
            "startupProbe": _probe("/startupz", period=STARTUP_PERIOD, timeout=2, threshold=_patience(spec, plan)),
            "readinessProbe": _probe("/readyz", period=2, timeout=2, threshold=3),
            "livenessProbe": _probe("/livez", period=10, timeout=5, threshold=6),
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "volumeMounts": [
                {"name": "config", "mountPath": CONFIG_DIR, "readOnly": True},
                {"name": "model", "mountPath": MOUNT, "readOnly": True},
                {"name": "tmp", "mountPath": "/tmp"},
                {"name": "shm", "mountPath": "/dev/shm"},
                *api_key.mounts(spec),
                *map(pod_template.mount, spec.pod_template.volume_mounts),
            ],
        }
    )


def _environment(spec: Spec) -> list[Body]:
    fields = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_UID": "metadata.uid"}
    # fieldRef is atomic: its default apiVersion counts as ours, so it is spelled out
    named: list[Body] = [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for name, path in fields.items()
    ]
    values = {"HOME": "/tmp"}
    if (threads := cpu_threads(spec)) is not None:
        values["OMP_NUM_THREADS"] = str(threads)
    ours = named + [{"name": name, "value": value} for name, value in values.items()]
    return ours + [pod_template.variable(variable) for variable in spec.pod_template.env]


def _volumes(subject: Subject, config_hash: str) -> list[Body]:
    claim = ModelUri.parse(subject.spec.model.uri).authority
    resources = subject.spec.resources
    return [
        {"name": "config", "configMap": {"name": subject.config_name(config_hash)}},
        {"name": "model", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}},
        {"name": "tmp", "emptyDir": {"sizeLimit": quantity.canonical(resources.scratch)}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": quantity.canonical(resources.shared_memory)}},
        *api_key.volumes(subject.spec),
        *map(pod_template.volume, subject.spec.pod_template.volumes),
    ]


def _probe(path: str, *, period: int, timeout: int, threshold: int) -> Body:
    return {
        "httpGet": {"path": path, "port": "admin"},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": threshold,
    }


def _quantities(resources: dict[str, str]) -> dict[str, str]:
    return {name: quantity.canonical(amount) for name, amount in resources.items()}


def _without_empty(body: dict[str, Any]) -> Body:
    """`body` without absent and empty values: an empty struct would be ours, and a foreign field in it too."""
    return {key: value for key, value in body.items() if value is not None and value != {} and value != []}
