"""What a pod mounts for its weights: the claim that has them, or room for the small files of a source it streams."""

from __future__ import annotations

from graphpod_operator.api.spec import Spec
from graphpod_operator.intent.model_uri import MOUNT
from graphpod_operator.render.owner import Body, Owner
from graphpod_policy import STREAM_CREDENTIALS

SECRET_VOLUME = "model-credentials"
SMALL_FILES = "2Gi"
"""Configuration, tokenizer and templates; the engine bounds them to half of it."""


def mounts(spec: Spec) -> list[Body]:
    """Of the engine's container."""
    if not spec.model.stream:
        return [{"name": "model", "mountPath": MOUNT, "readOnly": True}]
    found: list[Body] = [{"name": "model", "mountPath": MOUNT}]
    if spec.model.secret_ref is not None:
        found.append({"name": SECRET_VOLUME, "mountPath": STREAM_CREDENTIALS, "readOnly": True})
    return found


def volumes(owner: Owner) -> list[Body]:
    """Of the pod."""
    model = owner.spec.model
    if not model.stream:
        return [{"name": "model", "persistentVolumeClaim": {"claimName": owner.claim, "readOnly": True}}]
    found: list[Body] = [{"name": "model", "emptyDir": {"sizeLimit": SMALL_FILES}}]
    if model.secret_ref is not None:
        found.append({"name": SECRET_VOLUME, "secret": {"secretName": model.secret_ref.name}})
    return found
