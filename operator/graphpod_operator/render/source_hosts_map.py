"""The ConfigMap with the hosts that pods may connect to for their weights: of a service that streams them.

It is the installer's setting, not the service's, so it is no part of the pods' template or of the engine's hashed
configuration: a changed list restarts nothing, and pods read it at each start.
"""

from __future__ import annotations

import json
from pathlib import PurePosixPath

from graphpod_operator.api.names import source_hosts_name
from graphpod_operator.kube.resources import Resource
from graphpod_operator.render.owner import Body, Owner
from graphpod_operator.render.pod.weights import HOSTS_VOLUME
from graphpod_policy import STREAM_HOSTS


def streams(pinned: Body) -> bool:
    """Whether the pods of a rendering mount it. The spec may want a download already, while these still run."""
    return any(volume["name"] == HOSTS_VOLUME for volume in pinned["template"]["spec"].get("volumes", ()))


def source_hosts_map(owner: Owner) -> Body:
    """Its name never changes, its content does."""
    hosts = json.dumps(list(owner.installed.allowed.source_hosts))
    name = source_hosts_name(owner.name)
    return owner.child(Resource.ConfigMap, name, data={PurePosixPath(STREAM_HOSTS).name: hosts})
