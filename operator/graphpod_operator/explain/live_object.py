"""The live object that `graphpod explain gisvc/NAME` speaks of, and its revisions: the same port and credentials as the
operator.
"""

from __future__ import annotations

import asyncio
from functools import partial

from graphpod_operator.api.names import OWNER_LABEL, SHORT_NAME
from graphpod_operator.cache.child import Child
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.explain.input_error import InputError
from graphpod_operator.kube import bounds
from graphpod_operator.kube.cluster import ApiError, Raw
from graphpod_operator.kube.resources import Resource


def namespace() -> str | None:
    """That of the kubeconfig's context; None where it names none, or the Kubernetes client is missing."""
    try:
        from graphpod_operator.kube.connection import namespace_of
    except ImportError:
        return None
    return namespace_of()


def fetch(namespace: str, name: str) -> tuple[Raw, tuple[Child, ...]]:
    """The InferenceService as the API server has it, and the ControllerRevisions with its label. Raises Mistake when
    they cannot be had.
    """
    try:
        from graphpod_operator.kube import connection
        from graphpod_operator.kube.client import KubernetesCluster
    except ImportError as error:
        raise InputError(
            f"{error}: to read a cluster run in a clone: pip install '.[operator]', "
            f"or use: kubectl get {SHORT_NAME} {name} -n {namespace} -o json | graphpod explain -f -"
        ) from error

    async def ask() -> tuple[Raw | None, tuple[Child, ...]]:
        live = await connection.connect(lambda status, method, seconds: None)
        try:
            port = KubernetesCluster(live)
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
        raise InputError(f"{SHORT_NAME}/{name}: {error}") from error
    if found is None:
        raise InputError(
            f"{SHORT_NAME}/{name} does not exist in namespace {namespace}; for another namespace: -n NAMESPACE"
        )
    if (breach := found.get(bounds.BREACH)) is not None:
        raise InputError(f"{SHORT_NAME}/{name} in namespace {namespace}: {breach}; {Reason.SpecTooLarge.row.todo}")
    return found, revisions
