"""The engine's container in its pod: command, environment, ports, probes, mounts; and how long a start may take."""

from __future__ import annotations

import math
from typing import Any

from graphpod_operator.api import duration, quantity
from graphpod_operator.api.names import CONTAINER
from graphpod_operator.api.spec import Spec
from graphpod_operator.intent.engine_config import cpu_threads
from graphpod_operator.render.config_map import KEY
from graphpod_operator.render.owner import Body, Owner
from graphpod_operator.render.pod import additions, api_key, front_options, group_key, tls, weights
from graphpod_operator.render.service import api_port
from graphpod_policy import Plan

HTTP_PORT = 8000
ADMIN_PORT = 8001
RANKS_PORT = 29500
"""Of the leader of a group: from this one on, its workers meet it there. They open others of their own choice."""
CONFIG_DIR = "/etc/graphpod"
COMMAND = ("graphpod-engine", "serve", "--config", f"{CONFIG_DIR}/{KEY}")
STARTUP_PERIOD = 5
"""Seconds between two startup probes."""
LEAST_CEILING = 3600
"""Seconds that every start may take: the engine's own watchdog ends one that makes no progress, so this only ends one
whose watchdog is stuck, too.
"""
WAITING_CEILING = 168 * 3600
"""The same of a group, whose leader waits while a worker has no node: its end would take the worker's place in the
queue, too. The most that spec.engine.startTimeout may be.
"""
CEILING_FACTOR = 10
"""A start may take this multiple of its estimate: storage and processors are slower than any that was measured."""


def container(owner: Owner, plan: Plan) -> Body:
    """The container of the engine."""
    spec = owner.spec
    return without_empty(
        {
            "name": CONTAINER,
            "image": owner.installed.images.of(spec),
            "imagePullPolicy": spec.engine.image_pull_policy.value,
            "command": [
                *COMMAND,
                *api_key.arguments(spec),
                *tls.arguments(spec),
                *front_options.arguments(spec),
                *_group(spec),
            ],
            "env": _environment(owner),
            "ports": [
                {"name": api_port(spec).name, "containerPort": HTTP_PORT, "protocol": "TCP"},
                {"name": "admin", "containerPort": ADMIN_PORT, "protocol": "TCP"},
            ],
            "resources": without_empty(
                {
                    "requests": _quantities(spec.resources.requests),
                    "limits": _quantities(spec.resources.limits),
                }
            ),
            "startupProbe": _probe("/startupz", period=STARTUP_PERIOD, timeout=2, threshold=patience(spec, plan)),
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
                *weights.mounts(spec),
                {"name": "tmp", "mountPath": "/tmp"},
                {"name": "shm", "mountPath": "/dev/shm"},
                *api_key.mounts(spec),
                *tls.mounts(spec),
                *map(additions.mount, spec.pod_template.volume_mounts),
            ],
        }
    )


def _group(spec: Spec) -> tuple[str, ...]:
    """Which pod of a group it is, and where its leader is: the kubelet fills in what the group's controller says."""
    if spec.parallelism.nodes == 1:
        return ()
    return "--leader", f"$(LWS_LEADER_ADDRESS):{RANKS_PORT}", "--node-index", "$(LWS_WORKER_INDEX)"


def _environment(owner: Owner) -> list[Body]:
    spec = owner.spec
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
    if spec.parallelism.nodes > 1:
        ours.append(group_key.variable(owner))
    return ours + [additions.variable(variable) for variable in spec.pod_template.env]


def _probe(path: str, *, period: int, timeout: int, threshold: int) -> Body:
    return {
        "httpGet": {"path": path, "port": "admin"},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": threshold,
    }


def _quantities(resources: dict[str, str]) -> dict[str, str]:
    return {name: quantity.canonical(amount) for name, amount in resources.items()}


def start_ceiling(spec: Spec, plan: Plan) -> int:
    """Seconds after which the kubelet ends a start, in whole minutes. Of spec and plan alone: no start that was seen
    counts (contract 14).
    """
    if asked := spec.engine.start_timeout:
        return math.ceil(duration.seconds(asked) / 60) * 60
    if spec.parallelism.nodes > 1:
        return WAITING_CEILING
    return math.ceil(max(LEAST_CEILING, CEILING_FACTOR * plan.budget.start_seconds) / 60) * 60


def start_limit(pinned: Body) -> int:
    """Seconds after which the kubelet ends a start of what `workload` rendered."""
    probe = pinned["template"]["spec"]["containers"][0]["startupProbe"]
    limit: int = probe["periodSeconds"] * probe["failureThreshold"]
    return limit


def patience(spec: Spec, plan: Plan) -> int:
    """Failed startup probes that a pod survives."""
    return start_ceiling(spec, plan) // STARTUP_PERIOD


def without_empty(body: dict[str, Any]) -> Body:
    """`body` without absent and empty values: an empty struct would be ours, and a foreign field in it too."""
    return {key: value for key, value in body.items() if value is not None and value != {} and value != []}
