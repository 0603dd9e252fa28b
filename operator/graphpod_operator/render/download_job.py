"""The Job that downloads a model to a claim. It is created once and never changed: see `resolve.download`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from graphpod_operator.api import quantity
from graphpod_operator.api.names import (
    CLAIM_ANNOTATION,
    CREDENTIALS_VOLUME,
    FETCH_CONTAINER,
    FOLDER_LABEL,
    INSTANCE_LABEL,
    MANAGED_BY,
    NEAR_ANNOTATION,
    SECRETS_ANNOTATION,
)
from graphpod_operator.install.allow_lists import EVERYTHING
from graphpod_operator.intent.asked_downloads import Download
from graphpod_operator.intent.source_hosts import settings
from graphpod_operator.kube.resources import Resource
from graphpod_operator.render.owner import Body, Owner
from graphpod_operator.render.pod import additions, placement
from graphpod_operator.render.pod.container import ADMIN_PORT, without_empty
from graphpod_operator.render.pod.security import pod_security

COMMAND = "graphpod-fetch"
ROOT = "/models"
"""Where the Job's pod mounts the claim."""
CREDENTIALS = "/etc/graphpod/credentials"
NOT_WORTH_ANOTHER_TRY = (2, 65)
"""Exit codes of a download that would fail again: an argument it does not know, and a reason that stays."""
RETRIES = 6
HOSTNAME_LABEL = "kubernetes.io/hostname"
RESOURCES = {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "4Gi"}}
"""Of a download: it holds some parts of files in memory, whatever the size of the model."""
SCRATCH = "1Gi"


def download_job(
    owner: Owner,
    download: Download,
    keep: Iterable[str],
    tried: Iterable[str] = (),
    near: Sequence[str] = (),
) -> Body:
    """The Job of a download as `owner` is the first to ask for it. `keep` are the folders of the claim that stay where
    others are removed for lack of space, `tried` the Secrets with which it failed before, `near` the services whose
    pods hold the claim on one node.
    """
    secret = secret_name(owner)
    labels = {
        "app.kubernetes.io/name": "graphpod-fetch",
        MANAGED_BY[0]: MANAGED_BY[1],
        "app.kubernetes.io/part-of": "graphpod",
        FOLDER_LABEL: download.folder,
    }
    return {
        "apiVersion": Resource.Job.api_version,
        "kind": Resource.Job.kind,
        "metadata": {
            "name": download.job,
            "namespace": owner.namespace,
            "labels": labels,
            "annotations": {
                CLAIM_ANNOTATION: download.claim,
                SECRETS_ANNOTATION: json.dumps(sorted({*tried, secret})),
                **({NEAR_ANNOTATION: json.dumps(near)} if near else {}),
            },
        },
        "spec": {
            "backoffLimit": RETRIES,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "FailJob",
                        "onExitCodes": {
                            "containerName": FETCH_CONTAINER,
                            "operator": "In",
                            "values": [*NOT_WORTH_ANOTHER_TRY],
                        },
                    },
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                ]
            },
            "template": {
                "metadata": {"labels": labels},
                "spec": _pod(owner, download, keep, secret, near),
            },
        },
    }


def secret_name(owner: Owner) -> str:
    """The Secret with which a service's downloads are tried; empty for none."""
    ref = owner.spec.model.secret_ref
    return ref.name if ref is not None else ""


def _pod(owner: Owner, download: Download, keep: Iterable[str], secret: str, near: Sequence[str]) -> Body:
    spec, fields = owner.spec, placement.fields(owner)
    # the node chosen here may decide where the claim's volume is made: it must be one that the service's pods may use
    affinity = {name: terms for name, terms in fields["affinity"].items() if name == "nodeAffinity"}
    if near:
        affinity["podAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [_on_the_node_of(near)]}
    mounts: list[Body] = [{"name": "models", "mountPath": ROOT}, {"name": "tmp", "mountPath": "/tmp"}]
    volumes: list[Body] = [
        {"name": "models", "persistentVolumeClaim": {"claimName": download.claim}},
        {"name": "tmp", "emptyDir": {"sizeLimit": SCRATCH}},
    ]
    if secret:
        mounts.append({"name": CREDENTIALS_VOLUME, "mountPath": CREDENTIALS, "readOnly": True})
        volumes.append({"name": CREDENTIALS_VOLUME, "secret": {"secretName": secret}})
    return without_empty(
        {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": pod_security(owner),
            "containers": [
                {
                    "name": FETCH_CONTAINER,
                    "image": owner.installed.images.of(spec),
                    "imagePullPolicy": spec.engine.image_pull_policy.value,
                    "command": [COMMAND, *_arguments(owner, download, keep)],
                    "env": [
                        {"name": "HOME", "value": "/tmp"},
                        *map(additions.variable, settings(spec)),
                    ],
                    "ports": [{"name": "admin", "containerPort": ADMIN_PORT, "protocol": "TCP"}],
                    "resources": RESOURCES,
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "volumeMounts": mounts,
                }
            ],
            "volumes": volumes,
            "imagePullSecrets": [{"name": one.name} for one in spec.engine.image_pull_secrets],
            "nodeSelector": fields["nodeSelector"],
            "tolerations": fields["tolerations"],
            "affinity": affinity,
            "priorityClassName": fields["priorityClassName"],
        }
    )


def _on_the_node_of(services: Sequence[str]) -> Body:
    """One node mounts a ReadWriteOnce claim: anywhere else the Job's pod would wait for its volume for ever."""
    pods = {"key": INSTANCE_LABEL, "operator": "In", "values": [*services]}
    return {"labelSelector": {"matchExpressions": [pods]}, "topologyKey": HOSTNAME_LABEL}


def _arguments(owner: Owner, download: Download, keep: Iterable[str]) -> list[str]:
    cache = owner.spec.model.cache
    arguments = [download.uri.text, "--root", ROOT, "--folder", download.folder, "--port", str(ADMIN_PORT)]
    if download.uri.version:
        arguments += ["--sha256", download.uri.version]
    if (hosts := owner.installed.allowed.source_hosts) != EVERYTHING:
        arguments += ["--allowed-hosts", *hosts]
    if cache is not None and cache.size is not None:
        arguments += ["--size", str(quantity.whole(cache.size))]
        if kept := sorted({*keep} - {download.folder}):
            arguments += ["--keep", *kept]
    return arguments
