"""The objects that the commands read from the API server, with the rights of the user."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import msgspec

from graphpod_operator.api.names import KIND, OWNER_LABEL, SHORT_NAME
from graphpod_operator.cache.child import Child
from graphpod_operator.cache.claim import Claim
from graphpod_operator.cache.pod import Pod
from graphpod_operator.cache.service import Service
from graphpod_operator.explain.input_error import InputError
from graphpod_operator.kube import connection
from graphpod_operator.kube.client import KubernetesCluster
from graphpod_operator.kube.cluster import ApiError, Raw, ServerRefused
from graphpod_operator.kube.connection import Connection
from graphpod_operator.kube.resources import Resource
from graphpod_operator.terminal.values.service import ServiceState

EVENTS = 200
"""Of a service, at most."""


@asynccontextmanager
async def connected(context: str | None) -> AsyncIterator[Connection]:
    """A connection, closed at the end. Raises InputError where there is no cluster."""
    try:
        wire = await connection.connect(lambda status, method, seconds: None, context)
    except ApiError as error:
        raise InputError(str(error)) from error
    try:
        yield wire
    finally:
        await wire.close()


async def services(wire: Connection, namespace: str | None) -> list[ServiceState]:
    """The services of one namespace or (None) of all, in order. Raises ApiError."""
    found = await KubernetesCluster(wire).list(Resource.InferenceService, namespace, "", ServiceState.of)
    return sorted(found.items, key=lambda one: (one.namespace, one.name))


async def whole_services(wire: Connection, namespace: str | None) -> tuple[Service, ...]:
    """The same with their specs. Raises ApiError."""
    return (await KubernetesCluster(wire).list(Resource.InferenceService, namespace, "", Service.of)).items


async def claims(wire: Connection, namespace: str | None) -> tuple[Claim, ...]:
    """The claims of one namespace or (None) of all, with what is known of their folders. Raises ApiError."""
    return (await KubernetesCluster(wire).list(Resource.PersistentVolumeClaim, namespace, "", Claim.of)).items


async def service(wire: Connection, namespace: str, name: str) -> Raw:
    """One service. Raises InputError where it does not exist, and ApiError."""
    raw = await KubernetesCluster(wire).get(Resource.InferenceService, namespace, name)
    if raw is None:
        raise InputError(
            f"{SHORT_NAME}/{name} does not exist in namespace {namespace}; for another namespace: -n NAMESPACE"
        )
    return raw


async def pods(wire: Connection, namespace: str | None, name: str | None = None) -> list[Pod]:
    """The pods of one service, of one namespace or of all, by name. Raises ApiError."""
    selector = OWNER_LABEL if name is None else f"{OWNER_LABEL}={name}"
    found = await KubernetesCluster(wire).list(Resource.Pod, namespace, selector, Pod.of)
    return sorted((pod for pod in found.items if pod.key is not None), key=lambda pod: (pod.namespace, pod.name))


async def revisions(wire: Connection, namespace: str, name: str) -> list[Child]:
    """The ControllerRevisions of a service, oldest first; those of its groups have its labels, too. Raises ApiError."""
    kept = partial(Child.of, Resource.ControllerRevision)
    found = await KubernetesCluster(wire).list(Resource.ControllerRevision, namespace, f"{OWNER_LABEL}={name}", kept)
    ours = [one for one in found.items if one.controller is not None and one.controller.is_service(name)]
    return sorted(ours, key=lambda one: (one.kept.number if one.kept else 0, one.name))


async def events(wire: Connection, namespace: str, name: str) -> list[Raw]:
    """The events of a service, at most EVENTS. Raises ApiError."""
    query = {"fieldSelector": f"involvedObject.kind={KIND},involvedObject.name={name}", "limit": str(EVENTS)}
    page = await wire.page(f"/api/v1/namespaces/{namespace}/events", query)
    try:
        return [msgspec.json.decode(bytes(item), type=dict) for item in page.items]
    except (ValueError, RecursionError) as error:
        raise ServerRefused(0, f"events of {name} cannot be read: {error}") from error
