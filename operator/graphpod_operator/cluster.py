"""The six-method port over kubernetes.aio. The only file that imports the Kubernetes client.

Bodies stay plain dicts: the client's typed models would fill in fields that we do not mean to own. The client gives
connection, credentials and their renewal; paths and verbs are ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar
from urllib.request import getproxies

import aiohttp
import msgspec
from kubernetes.aio import client, config

from graphpod_operator import bounds
from graphpod_operator.bounds import Page
from graphpod_operator.ownership import FIELD_MANAGER
from graphpod_operator.port import (
    ApiError,
    Conflict,
    Expired,
    Listing,
    Raw,
    Refused,
    T,
    Terminating,
    TimedOut,
    Unavailable,
)
from graphpod_operator.resource import Resource

REQUEST_TIMEOUT = 30.0
"""Seconds one request may take."""
PAGE = 200
"""Objects per page of a list: some megabytes."""
ERROR_BYTES = 64 * 1024
"""Of an answer that says no: it may repeat the object that it refuses."""
SAID = 2048
"""Characters of the server's words that are kept."""
OWN_PAGE = 1000
"""Services per page. Of a custom kind, a page that goes on from another took Kubernetes 1.36 four times as long for
each object as a first page (1000 services, 2026-11-22).
"""
CONNECT_TIMEOUT = 3.0
"""Seconds of it until the request is on its way: one that is held up longer would be sent by who may lead no more."""
LEASE_TIMEOUT = 3.0
"""The same for a request about the Lease: several have to fit between two renewals."""
WATCH_SECONDS = 290
"""After which the API server ends a watch: one that tells nothing though it lives ends anyway."""
SILENT_SECONDS = 70.0
"""Without a word until a watch is ended and opened again, lest it be dead: one whose kind is not quiet tells at least a
BOOKMARK each minute.
"""

APPLY = "application/apply-patch+yaml"  # JSON is YAML
JSON = "application/json"
METADATA = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""Of a list: nothing of an object but its metadata."""

_UNTYPED = "failed to create typed patch object"
"""An apply with a field of the wrong name or type is answered with a 500; asking again would not help."""

_ENDING = "NamespaceTerminating"
"""The cause in a 403 to a create in a namespace that is being deleted."""

D = TypeVar("D")
Answered = Callable[[str, str], None]
"""Told of every answer: HTTP status (or `<error>`) and method."""


async def connect(answered: Answered) -> Wire:
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
    configuration.connection_pool_maxsize = 0  # as many as there are workers: none waits for another's answer
    # aiohttp, told to trust the environment, reads ~/.netrc for every request, in a thread
    configuration.client_session_kwargs = {"trust_env": bool(getproxies())}
    return Wire(client.ApiClient(configuration), answered)


class TooLong(Unavailable):
    """An answer was not read to its end."""


class Wire:
    """One connection pool: requests, and the port's errors."""

    def __init__(self, api: client.ApiClient, answered: Answered) -> None:
        self._api = api
        self._answered = answered

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()  # type: ignore[no-untyped-call]

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Raw | None = None,
        content: str = JSON,
        seconds: float = REQUEST_TIMEOUT,
        fence: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """One request; the decoded answer, of an object that breaks a bound its outline. Raises the port's errors,
        never the client's, and what `fence` raises: it is asked last of all before the request leaves.
        """
        limit = aiohttp.ClientTimeout(total=seconds, connect=min(seconds, CONNECT_TIMEOUT))
        async with self._answer(method, path, query, body, content, limit, fence) as response:
            text = await _read(response, f"{method} {path}")
        return _decoded(text, f"{method} {path}", bounds.read)

    async def page(self, path: str, query: Mapping[str, str], accept: str = JSON) -> Page:
        """A page of a list. Raises the port's errors; TooLong where it has more than ANSWER_BYTES."""
        limit = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT, connect=CONNECT_TIMEOUT)
        async with self._answer("GET", path, query, None, JSON, limit, accept=accept) as response:
            return _decoded(await _read(response, f"GET {path}"), f"GET {path}", Page.of)

    async def lines(self, path: str, query: Mapping[str, str], silent: float, tell: Callable[[bytes], None]) -> None:
        """A GET, of which each line is told as it comes, until the answer ends or is silent for so many seconds. Raises
        the port's errors; Expired at a line of more than ANSWER_BYTES, as a list takes it in.
        """
        limit = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT, sock_read=silent)
        async with self._answer("GET", path, query, None, JSON, limit) as response:
            rest = b""
            with suppress(aiohttp.ServerTimeoutError):
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        tell(line)
                    if len(rest) > bounds.ANSWER_BYTES:
                        raise Expired(0, f"GET {path}: an event of more than {bounds.ANSWER_BYTES} bytes")

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Raw | None,
        content: str,
        limit: aiohttp.ClientTimeout,
        fence: Callable[[], None] = lambda: None,
        accept: str = JSON,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer that says yes, still to be read; what goes wrong meanwhile is raised as the port's errors."""
        # without the body, which the client would copy field by field
        prepared = await self._api.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            # what is packed tells nothing of its size
            header_params={"Content-Type": content, "Accept": accept, "Accept-Encoding": "identity"},
            auth_settings=["BearerToken"],
        )
        fence()
        answered = False
        try:
            called = await self._api.call_api(*prepared[:3], body, _request_timeout=limit)
            async with called.response as response:
                text = await _beginning(response) if response.status >= 400 else b""
                self._answered(str(response.status), method)
                answered = True
                if response.status >= 400:
                    raise _error(response.status, f"{method} {path}", _said(text))
                yield response
        except (aiohttp.ClientError, OSError, TimeoutError, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and _told_to_stop():
                raise
            if not answered:
                self._answered("<error>", method)
            late = isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError)
            raise (TimedOut if late else Unavailable)(
                0, f"{method} {path}: the API server did not answer: {error or type(error).__name__}"
            ) from error


def _told_to_stop() -> bool:
    """Whether this very task is being cancelled. kopf, when it ends, also cancels tasks that aiohttp made for us."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


class KubernetesLeases:
    """The port of `lease`, over the same wire."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def get(self, namespace: str, name: str) -> Raw | None:
        """The live Lease, or None."""
        try:
            return await self._wire.request("GET", _path(Resource.Lease, namespace, name), seconds=LEASE_TIMEOUT)
        except Refused as error:
            if error.status == 404:
                return None
            raise

    async def put(self, body: Raw) -> Raw:
        """Create a Lease without a resourceVersion; replace the one of exactly this resourceVersion."""
        metadata = body["metadata"]
        made = "resourceVersion" not in metadata
        path = _path(Resource.Lease, metadata["namespace"], None if made else metadata["name"])
        return await self._wire.request("POST" if made else "PUT", path, body=body, seconds=LEASE_TIMEOUT)


class KubernetesDiscovery:
    """The port of `kinds`, over the same wire."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def serves(self, kinds: Collection[Resource]) -> frozenset[Resource]:
        """Those of `kinds` that are served. One request, and one more for each group of theirs that is there."""
        groups = (await self._wire.request("GET", "/apis"))["groups"]
        versions = {version["groupVersion"] for group in groups for version in group["versions"]}
        found: set[Resource] = set()
        for version in versions.intersection(kind.api_version for kind in kinds):
            plurals = await self._plurals(version)
            found.update(kind for kind in kinds if kind.api_version == version and kind.plural in plurals)
        return frozenset(found)

    async def _plurals(self, version: str) -> set[str]:
        try:
            listed = await self._wire.request("GET", f"/apis/{version}")
        except Refused as error:
            if error.status == 404:
                return set()
            raise
        return {resource["name"] for resource in listed["resources"]}


class KubernetesWatches:
    """The port of `follow`, over the same wire."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def watch(
        self, resource: Resource, namespace: str | None, selector: str, since: int, tell: Callable[[str, Raw], None]
    ) -> None:
        """Tell what happens to a kind since a version, until the API server ends the watch."""
        path = _path(resource, namespace)
        what = f"watch of {path}"
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": str(since),
            "timeoutSeconds": str(WATCH_SECONDS),
            "labelSelector": selector,
        }

        def told(line: bytes) -> None:
            event = _decoded(line, what, bounds.event)
            if event["type"] == "ERROR":
                raise _error(event["object"].get("code") or 500, what, event["object"])
            tell(event["type"], event["object"])

        await self._wire.lines(path, query, SILENT_SECONDS, told)


class KubernetesCluster:
    """The six-method port, over a wire. `fence` is asked before every write, and raises when it may not be."""

    def __init__(self, wire: Wire, fence: Callable[[], None] = lambda: None) -> None:
        self._wire = wire
        self._fence = fence

    async def get(self, resource: Resource, namespace: str, name: str) -> Raw | None:
        """The live object, or None."""
        try:
            return await self._wire.request("GET", _path(resource, namespace, name))
        except Refused as error:
            if error.status == 404:
                return None
            raise

    async def list(
        self, resource: Resource, namespace: str | None, selector: str, keep: Callable[[Raw], T]
    ) -> Listing[T]:
        """What `keep` makes of every object of a kind that a label selector matches, in one namespace or (None) in all.
        Of a page the text is held, and one body at a time. A page that is too long is asked for again with half as many
        objects; of one object that is too long by itself, the metadata.
        """
        path, size = _path(resource, namespace), OWN_PAGE if resource is Resource.InferenceService else PAGE
        limit, query = size, {"labelSelector": selector} if selector else {}
        kept: list[T] = []
        while True:
            too_long: dict[str, str] = {}
            try:
                page = await self._wire.page(path, {"limit": str(limit), **query})
            except TooLong as error:
                if limit > 1:
                    limit //= 2
                    continue
                page = await self._wire.page(path, {"limit": "1", **query}, METADATA)
                too_long, limit = {bounds.BREACH: f"the object is too long to be read: {error}"}, size
            for begin in range(0, len(page.items), PAGE):
                turn = (_decoded(bytes(item), f"GET {path}", bounds.read) for item in page.items[begin : begin + PAGE])
                kept += (keep({**one, **too_long} if too_long else one) for one in turn)
                await asyncio.sleep(0)  # leases and probes have their turn
            if not page.metadata.more:
                return Listing(tuple(kept), int(page.metadata.version))
            query["continue"] = page.metadata.more
            del page  # or its text would be held while the next one is read

    async def apply(self, resource: Resource, body: Raw, *, force: bool, manager: str = FIELD_MANAGER) -> Raw:
        """Server-side apply as this field manager; the object as stored."""
        metadata = body["metadata"]
        return await self._apply(_path(resource, metadata["namespace"], metadata["name"]), body, force, manager)

    async def apply_status(self, body: Raw) -> Raw:
        """Server-side apply of the status of an InferenceService; the object as stored."""
        metadata = body["metadata"]
        path = _path(Resource.InferenceService, metadata["namespace"], metadata["name"]) + "/status"
        return await self._apply(path, body, force=True)

    async def delete(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        """Delete exactly the object with this uid; one that is gone already is no error."""
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            await self._write("DELETE", _path(resource, namespace, name), body)
        except Refused as error:
            if error.status != 404:
                raise

    async def event(self, body: Raw) -> None:
        """Create a core/v1 Event."""
        namespace = body["metadata"]["namespace"]
        await self._write("POST", f"/api/v1/namespaces/{namespace}/events", body)

    async def _apply(self, path: str, body: Raw, force: bool, manager: str = FIELD_MANAGER) -> Raw:
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        return await self._write("PATCH", path, body, query=query, content=APPLY)

    async def _write(self, method: str, path: str, body: Raw, **how: Any) -> dict[str, Any]:
        return await self._wire.request(method, path, body=body, fence=self._fence, **how)


def _path(resource: Resource, namespace: str | None, name: str | None = None) -> str:
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    scope = f"/namespaces/{namespace}" if namespace is not None else ""
    return f"{root}{scope}/{resource.plural}" + (f"/{name}" if name is not None else "")


async def _read(response: aiohttp.ClientResponse, what: str) -> bytes:
    """The text of an answer. Raises TooLong once it has more than ANSWER_BYTES."""
    text = bytearray()
    async for chunk in response.content.iter_any():
        text += chunk
        if len(text) > bounds.ANSWER_BYTES:
            raise TooLong(0, f"{what}: the answer has more than {bounds.ANSWER_BYTES} bytes")
    return bytes(text)


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    """The first ERROR_BYTES of an answer."""
    text = bytearray()
    async for chunk in response.content.iter_any():
        text += chunk
        if len(text) > ERROR_BYTES:
            break
    return bytes(text[:ERROR_BYTES])


def _decoded(text: bytes, what: str, reader: Callable[[bytes], D]) -> D:
    try:
        return reader(text)
    except ValueError as error:  # msgspec's own among them
        raise Unavailable(0, f"{what}: what answered is no API server: {text[:80]!r}") from error


def _said(text: bytes) -> Raw:
    """The Status that an answer is, or one made of a text that is none."""
    try:
        status: Raw = msgspec.json.decode(text, type=dict)
    except (ValueError, RecursionError):
        return {"message": text.decode(errors="replace")[:200]}
    return status


def _error(status: int, what: str, told: Raw) -> ApiError:
    """What a Status comes to that answers `what`."""
    message, details = str(told.get("message") or "")[:SAID], told.get("details") or {}
    said = f"{message} ({status} to {what})"  # a condition has room for the beginning only
    if status == 409:
        return Conflict(status, said)
    if status == 410:
        return Expired(status, said)
    ends = any(cause.get("reason") == _ENDING for cause in details.get("causes") or ())
    if ends or (status == 404 and details.get("kind") == "namespaces"):
        return Terminating(status, said)
    if _UNTYPED in message:
        return Refused(status, said)
    if status == 429 or status >= 500:
        return Unavailable(status, said)
    return Refused(status, said)
