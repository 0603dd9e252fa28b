"""The one live object that `graphpod explain gisvc/NAME` speaks of: the same port and credentials as the operator."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from graphpod_operator.api import SHORT_NAME
from graphpod_operator.explain_command import Mistake
from graphpod_operator.port import ApiError
from graphpod_operator.resource import Resource


def fetch(namespace: str, name: str) -> Mapping[str, Any]:
    """The InferenceService as the API server has it. Raises Mistake when it cannot be had."""
    try:
        from graphpod_operator import cluster
    except ImportError as error:
        raise Mistake(
            f"{error}: asking a cluster needs graphpod[operator]; "
            f"or: kubectl get {SHORT_NAME} {name} -n {namespace} -o json | graphpod explain -f -"
        ) from error

    async def ask() -> Mapping[str, Any] | None:
        live = await cluster.connect(lambda status, method: None)
        try:
            return await cluster.KubernetesCluster(live).get(Resource.InferenceService, namespace, name)
        finally:
            await live.close()

    try:
        found = asyncio.run(ask())
    except ApiError as error:
        raise Mistake(f"{SHORT_NAME}/{name}: {error}") from error
    if found is None:
        raise Mistake(f"no {SHORT_NAME}/{name} in namespace {namespace}; -n names another")
    return found
