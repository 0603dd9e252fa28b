"""The six-method port over kubernetes.aio. The only file that imports the Kubernetes client.

Bodies stay plain dicts: the client's typed models would fill in fields that we do not mean to own. The client gives
connection, credentials and their renewal; paths and verbs are ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
from kubernetes.aio import client, config

from graphpod_operator.ownership import FIELD_MANAGER
from graphpod_operator.port import ApiError, Conflict, Listing, Raw, Refused, Unavailable
from graphpod_operator.resource import Resource

REQUEST_TIMEOUT = 30.0
"""Seconds one request may take."""
PAGE = 500
"""Objects per page of a list."""
CONNECTIONS = 32

APPLY = "application/apply-patch+yaml"  # JSON is YAML
JSON = "application/json"

_UNTYPED = "failed to create typed patch object"
"""An apply with a field of the wrong name or type is answered with a 500; asking again would not help."""

Answered = Callable[[str, str], None]
"""Told of every answer: HTTP status (or `<error>`) and method."""


async def connect(answered: Answered) -> KubernetesCluster:
    """The cluster this process is meant for: that of its service account, else that of its kubeconfig. Raises
    Unavailable when it has neither.
    """
    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except config.ConfigException:
        try:
            await config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except config.ConfigException as error:
            raise Unavailable(0, f"no cluster to ask: {error}; set KUBECONFIG") from error
    configuration.connection_pool_maxsize = CONNECTIONS
    return KubernetesCluster(client.ApiClient(configuration), answered)


class KubernetesCluster:
    """The port, over one connection pool."""

    def __init__(self, api: client.ApiClient, answered: Answered) -> None:
        self._api = api
        self._answered = answered

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()  # type: ignore[no-untyped-call]

    async def get(self, resource: Resource, namespace: str, name: str) -> Raw | None:
        """The live object, or None."""
        try:
            return await self._request("GET", _path(resource, namespace, name))
        except Refused as error:
            if error.status == 404:
                return None
            raise

    async def list(self, resource: Resource, namespace: str | None, selector: str = "") -> Listing:
        """Every object of a kind that a label selector matches, in one namespace or (None) in all."""
        query = {"limit": str(PAGE)} | ({"labelSelector": selector} if selector else {})
        items: list[Raw] = []
        while True:
            page = await self._request("GET", _path(resource, namespace), query=query)
            items += page["items"]
            metadata = page["metadata"]
            if not metadata.get("continue"):
                return Listing(tuple(items), int(metadata["resourceVersion"]))
            query["continue"] = metadata["continue"]

    async def apply(self, resource: Resource, body: Raw, *, force: bool) -> Raw:
        """Server-side apply as field manager `graphpod`; the object as stored."""
        metadata = body["metadata"]
        return await self._apply(_path(resource, metadata["namespace"], metadata["name"]), body, force)

    async def apply_status(self, body: Raw) -> Raw:
        """Server-side apply of the status of an InferenceService; the object as stored."""
        metadata = body["metadata"]
        path = _path(Resource.InferenceService, metadata["namespace"], metadata["name"]) + "/status"
        return await self._apply(path, body, force=True)

    async def delete(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        """Delete exactly the object with this uid; one that is gone already is no error."""
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            await self._request("DELETE", _path(resource, namespace, name), body=body)
        except Refused as error:
            if error.status != 404:
                raise

    async def event(self, body: Raw) -> None:
        """Create a core/v1 Event."""
        namespace = body["metadata"]["namespace"]
        await self._request("POST", f"/api/v1/namespaces/{namespace}/events", body=body)

    async def _apply(self, path: str, body: Raw, force: bool) -> Raw:
        query = {"fieldManager": FIELD_MANAGER, "force": "true" if force else "false"}
        return await self._request("PATCH", path, query=query, body=body, content=APPLY)

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Raw | None = None,
        content: str = JSON,
    ) -> dict[str, Any]:
        """One request; the decoded answer. Raises the port's errors, never the client's."""
        prepared = await self._api.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Content-Type": content, "Accept": JSON},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            response = await self._api.call_api(*prepared, _request_timeout=REQUEST_TIMEOUT)
            text: bytes = await response.read()  # type: ignore[no-untyped-call]
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self._answered("<error>", method)
            raise Unavailable(
                0, f"{method} {path}: the API server did not answer: {error or type(error).__name__}"
            ) from error
        self._answered(str(response.status), method)
        if response.status >= 400:
            raise _error(response.status, method, path, text)
        answer: dict[str, Any] = json.loads(text)
        return answer


def _path(resource: Resource, namespace: str | None, name: str | None = None) -> str:
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    scope = f"/namespaces/{namespace}" if namespace is not None else ""
    return f"{root}{scope}/{resource.plural}" + (f"/{name}" if name is not None else "")


def _error(status: int, method: str, path: str, text: bytes) -> ApiError:
    try:
        message = json.loads(text)["message"]
    except (ValueError, KeyError, TypeError):
        message = text.decode(errors="replace")[:200]
    said = f"{message} ({status} to {method} {path})"  # a condition has room for the beginning only
    if status == 409:
        return Conflict(status, said)
    if _UNTYPED in message:
        return Refused(status, said)
    if status == 429 or status >= 500:
        return Unavailable(status, said)
    return Refused(status, said)
