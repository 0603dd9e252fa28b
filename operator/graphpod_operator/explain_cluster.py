"""The live object that `graphpod explain gisvc/NAME` speaks of, and its revisions: the same port and credentials as the
operator.
"""

from __future__ import annotations

import asyncio
from functools import partial

from graphpod_operator import bounds
from graphpod_operator.api import SHORT_NAME
from graphpod_operator.explain_command import Mistake
from graphpod_operator.observe import Child
from graphpod_operator.port import ApiError, Raw
from graphpod_operator.reasons import Reason
from graphpod_operator.render.subject import OWNER_LABEL
from graphpod_operator.resource import Resource


def fetch(namespace: str, name: str) -> tuple[Raw, tuple[Child, ...]]:
    """The InferenceService as the API server has it, and the ControllerRevisions with its label. Raises Mistake when
    they cannot be had.
    """
    try:
        from graphpod_operator import cluster
    except ImportError as error:
        raise Mistake(
            f"{error}: asking a cluster needs graphpod[operator]; "
            f"or: kubectl get {SHORT_NAME} {name} -n {namespace} -o json | graphpod explain -f -"
        ) from error

    async def ask() -> tuple[Raw | None, tuple[Child, ...]]:
        live = await cluster.connect(lambda status, method: None)
        try:
            port = cluster.KubernetesCluster(live)
            service = await port.get(Resource.InferenceService, namespace, name)
            if service is None:
                return None, ()
            kept = partial(Child.of, Resource.ControllerRevision)
            listing = await port.list(Resource.ControllerRevision, namespace, f"{OWNER_LABEL}={name}", kept)
            return service, listing.items
        finally:
            await live.close()

    try:
        found, revisions = asyncio.run(ask())
    except ApiError as error:
        raise Mistake(f"{SHORT_NAME}/{name}: {error}") from error
    if found is None:
        raise Mistake(f"no {SHORT_NAME}/{name} in namespace {namespace}; -n names another")
    if (breach := found.get(bounds.BREACH)) is not None:
        raise Mistake(f"{SHORT_NAME}/{name} in namespace {namespace}: {breach}; {Reason.SpecTooLarge.row.todo}")
    return found, revisions
