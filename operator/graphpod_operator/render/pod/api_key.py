"""The API key: a Secret that the pod mounts whole, so that a new value reaches a running engine. We never read it."""

from __future__ import annotations

from graphpod_operator.api.spec import Spec
from graphpod_operator.render.owner import Body

VOLUME = "api-key"
FOLDER = "/etc/graphpod-api-key"
FILE = "api-key"


def arguments(spec: Spec) -> list[str]:
    """Of the engine's command line."""
    return ["--api-key-file", f"{FOLDER}/{FILE}"] if spec.engine.api_key_secret_ref is not None else []


def mounts(spec: Spec) -> list[Body]:
    """Of the engine's container: the folder, since a file mounted alone would stay as it was."""
    if spec.engine.api_key_secret_ref is None:
        return []
    return [{"name": VOLUME, "mountPath": FOLDER, "readOnly": True}]


def volumes(spec: Spec) -> list[Body]:
    """Of the pod."""
    ref = spec.engine.api_key_secret_ref
    if ref is None:
        return []
    return [{"name": VOLUME, "secret": {"secretName": ref.name, "items": [{"key": ref.key, "path": FILE}]}}]
