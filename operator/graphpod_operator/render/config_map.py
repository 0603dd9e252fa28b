"""The ConfigMap with the engine's configuration: named after its bytes, never changed."""

from __future__ import annotations

from graphpod_operator.intent.engine_config import EngineFile
from graphpod_operator.kube.resources import Resource
from graphpod_operator.render.owner import Body, Owner

KEY = "engine.json"


def config_map(owner: Owner, file: EngineFile) -> Body:
    """The immutable ConfigMap that holds exactly the hashed bytes."""
    return owner.child(Resource.ConfigMap, owner.config_name(file.hash), immutable=True, data={KEY: file.data.decode()})
