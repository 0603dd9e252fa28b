"""The certificate of the API port: a Secret that the pod mounts whole, so that a renewed one reaches a running engine.
We never read it.
"""

from __future__ import annotations

from graphpod_operator.api.spec import Spec
from graphpod_operator.render.owner import Body

VOLUME = "graphpod-tls"
FOLDER = "/etc/graphpod-tls"
FILES = ("tls.crt", "tls.key")


def arguments(spec: Spec) -> list[str]:
    """Of the engine's command line."""
    return ["--tls-folder", FOLDER] if spec.engine.tls_secret_ref is not None else []


def mounts(spec: Spec) -> list[Body]:
    """Of the engine's container."""
    if spec.engine.tls_secret_ref is None:
        return []
    return [{"name": VOLUME, "mountPath": FOLDER, "readOnly": True}]


def volumes(spec: Spec) -> list[Body]:
    """Of the pod."""
    ref = spec.engine.tls_secret_ref
    if ref is None:
        return []
    items = [{"key": name, "path": name} for name in FILES]
    return [{"name": VOLUME, "secret": {"secretName": ref.name, "items": items}}]
