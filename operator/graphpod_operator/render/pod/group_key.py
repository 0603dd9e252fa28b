"""The Secret with the key by which the pods of a service's groups know each other.

It is made once, from random bytes, and never read: the operator has the right to create Secrets and no other. So the
name says whose it is: a fingerprint of the service's uid is in it, and what has that name already was made for this
service. It is deleted with the service. Renderings of earlier versions have the key in their pods' environment, and no
Secret.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

from graphpod_operator.kube.resources import Resource
from graphpod_operator.render.owner import Body, Owner

GROUP_KEY = "GRAPHPOD_GROUP_KEY"
"""The variable of the key. Nothing that people copy into a ticket shows its value."""
ENTRY = "key"


def secret_name(service: str, uid: str) -> str:
    """Of the service with this uid."""
    return f"{service}-group-key-{hashlib.sha256(uid.encode()).hexdigest()[:10]}"


def variable(owner: Owner) -> Body:
    """The environment variable of a pod of a group."""
    reference = {"name": secret_name(owner.name, owner.uid), "key": ENTRY}
    return {"name": GROUP_KEY, "valueFrom": {"secretKeyRef": reference}}


def secret_of(pinned: Mapping[str, Any]) -> str | None:
    """The Secret that the pods of a rendering take their key from; None where there is none. Whoever may edit a
    ControllerRevision writes what is kept of a rendering: any part of it may be of another kind."""
    match pinned:
        case {"template": {"spec": {"containers": [{"env": [*variables]}, *_]}}}:
            for one in variables:
                match one:
                    case {"name": str(name), "valueFrom": {"secretKeyRef": {"name": str(secret)}}} if name == GROUP_KEY:
                        return secret
    return None


def secret(sibling: Mapping[str, Any], name: str, key: str) -> Body:
    """A Secret with this key, which has the labels and the owner of another child of the service."""
    metadata = {part: sibling["metadata"][part] for part in ("namespace", "labels", "ownerReferences")}
    return {
        "apiVersion": Resource.Secret.api_version,
        "kind": Resource.Secret.kind,
        "metadata": {"name": name, **metadata},
        "type": "Opaque",
        "immutable": True,
        "data": {ENTRY: base64.b64encode(key.encode()).decode()},
    }
