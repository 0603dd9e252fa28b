"""The seven-method port, Leases, discovery and watches over one connection: paths and verbs are ours.

Bodies stay plain dicts: the client's typed models would fill in fields that we do not mean to own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from graphpod_operator.kube import bounds
from graphpod_operator.kube.cluster import AlreadyExists, Listing, Raw, ServerRefused, T, Unavailable, Unreached
from graphpod_operator.kube.connection import JSON, Connection, TooLong, decoded, server_error
from graphpod_operator.kube.field_ownership import FIELD_MANAGER
from graphpod_operator.kube.resources import Resource

PAGE = 200
"""Objects per page of a list: some megabytes."""
OWN_PAGE = 1000
"""Services per page. Of a custom kind, a page that goes on from another took Kubernetes 1.36 four times as long for
each object as a first page (1000 services, 2026-11-22).
"""
LEASE_TIMEOUT = 3.0
"""The same for a request about the Lease: several have to fit between two renewals."""
WATCH_SECONDS = 290
"""After which the API server ends a watch, even a silent one."""
SILENT_SECONDS = 70.0
"""Of silence until a watch is ended and opened again, lest it be dead: one whose kind is not quiet sends at least a
BOOKMARK each minute.
"""

APPLY = "application/apply-patch+yaml"  # JSON is YAML
METADATA = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""Of a list: nothing of an object but its metadata."""


class KubernetesLeases:
    """The port of `lease`, over the same wire."""

    def __init__(self, wire: Connection) -> None:
        self._wire = wire

    async def get(self, namespace: str, name: str) -> Raw | None:
        """The live Lease, or None."""
        try:
            return await self._wire.request("GET", _path(Resource.Lease, namespace, name), seconds=LEASE_TIMEOUT)
        except ServerRefused as error:
            if error.status == 404:
                return None
            raise

    async def put(self, body: Raw) -> Raw:
        """Create a Lease without a resourceVersion; replace the one of exactly this resourceVersion."""
        metadata = body["metadata"]
        made = "resourceVersion" not in metadata
        path = _path(Resource.Lease, metadata["namespace"], None if made else metadata["name"])
        return await self._wire.request("POST" if made else "PUT", path, body=body, seconds=LEASE_TIMEOUT)


class _Version(msgspec.Struct):
    groupVersion: str


class _Group(msgspec.Struct):
    versions: list[_Version]


class _Groups(msgspec.Struct):
    groups: list[_Group]


class _Kind(msgspec.Struct):
    name: str


class _Kinds(msgspec.Struct):
    """The kinds of a group and version. The server of an APIService, which may be anybody's, answers for its own."""

    resources: list[_Kind] | None


def _converted(answer: Raw, shape: type[T], what: str) -> T:
    try:
        return msgspec.convert(answer, shape)
    except msgspec.ValidationError as error:
        raise Unavailable(0, f"{what}: what answered is no API server: {error}") from error


class KubernetesDiscovery:
    """The port of `optional_kinds`, over the same wire."""

    def __init__(self, wire: Connection) -> None:
        self._wire = wire

    async def serves(self, kinds: Collection[Resource]) -> frozenset[Resource]:
        """Those of `kinds` that are served. One request, and one more for each group of theirs that is there. A group
        whose own server does not answer for it counts as served: the list of the kind then says what is wrong.
        """
        served = _converted(await self._wire.request("GET", "/apis"), _Groups, "GET /apis")
        versions = {version.groupVersion for group in served.groups for version in group.versions}
        found: set[Resource] = set()
        for version in versions.intersection(kind.api_version for kind in kinds):
            asked = [kind for kind in kinds if kind.api_version == version]
            try:
                plurals = await self._plurals(version)
            except Unreached:
                raise
            except Unavailable:
                plurals = {kind.plural for kind in asked}
            found.update(kind for kind in asked if kind.plural in plurals)
        return frozenset(found)

    async def _plurals(self, version: str) -> set[str]:
        try:
            listed = await self._wire.request("GET", f"/apis/{version}")
        except ServerRefused as error:
            if error.status == 404:
                return set()
            raise
        kinds = _converted(listed, _Kinds, f"GET /apis/{version}")
        return {kind.name for kind in kinds.resources or ()}


class KubernetesWatches:
    """The port of `child_watches`, over the same wire."""

    def __init__(self, wire: Connection) -> None:
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

        def on_line(line: bytes) -> None:
            event = decoded(line, what, bounds.event)
            if event["type"] == "ERROR":
                code = event["object"].get("code")
                raise server_error(code if isinstance(code, int) and code >= 400 else 500, what, event["object"])
            tell(event["type"], event["object"])

        await self._wire.lines(path, query, SILENT_SECONDS, on_line)


class KubernetesCluster:
    """The seven-method port, over a wire. `fence` is asked before every write, and raises when it may not be."""

    def __init__(self, wire: Connection, fence: Callable[[], None] = lambda: None) -> None:
        self._wire = wire
        self._fence = fence

    async def get(self, resource: Resource, namespace: str, name: str) -> Raw | None:
        """The live object, or None."""
        try:
            return await self._wire.request("GET", _path(resource, namespace, name))
        except ServerRefused as error:
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
                turn = (decoded(bytes(item), f"GET {path}", bounds.read) for item in page.items[begin : begin + PAGE])
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
        except ServerRefused as error:
            if error.status != 404:
                raise

    async def create(self, resource: Resource, body: Raw) -> bool:
        """Create an object that is never read: whether it was made. One of that name stays. Raises the port's
        errors.
        """
        try:
            path, query = _path(resource, body["metadata"]["namespace"]), {"fieldManager": FIELD_MANAGER}
            await self._write("POST", path, body, query=query)
        except AlreadyExists:
            return False
        return True

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
