"""What a pod mounts for its weights: the claim that has them, or room for the small files of a source it streams."""

from __future__ import annotations

from pathlib import PurePosixPath

from graphpod_operator.api.names import source_hosts_name
from graphpod_operator.api.spec import Spec
from graphpod_operator.intent.model_uri import MOUNT
from graphpod_operator.render.owner import Body, Owner
from graphpod_policy import STREAM_CREDENTIALS, STREAM_HOSTS

SECRET_VOLUME = "model-credentials"
HOSTS_VOLUME = "source-hosts"
SMALL_FILES = "2Gi"
"""Configuration, tokenizer and templates; the engine bounds them to half of it."""


def mounts(spec: Spec) -> list[Body]:
    """Of the engine's container."""
    if not spec.model.stream:
        return [{"name": "model", "mountPath": MOUNT, "readOnly": True}]
    found: list[Body] = [
        {"name": "model", "mountPath": MOUNT},
        {"name": HOSTS_VOLUME, "mountPath": str(PurePosixPath(STREAM_HOSTS).parent), "readOnly": True},
    ]
    if spec.model.secret_ref is not None:
        found.append({"name": SECRET_VOLUME, "mountPath": STREAM_CREDENTIALS, "readOnly": True})
    return found


def volumes(owner: Owner) -> list[Body]:
    """Of the pod."""
    model = owner.spec.model
    if not model.stream:
        return [{"name": "model", "persistentVolumeClaim": {"claimName": owner.claim, "readOnly": True}}]
    found: list[Body] = [
        {"name": "model", "emptyDir": {"sizeLimit": SMALL_FILES}},
        {"name": HOSTS_VOLUME, "configMap": {"name": source_hosts_name(owner.name)}},
    ]
    if model.secret_ref is not None:
        found.append({"name": SECRET_VOLUME, "secret": {"secretName": model.secret_ref.name}})
    return found
