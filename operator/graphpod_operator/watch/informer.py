"""Lists and watch events go into the store, and the keys that they concern into the queue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from graphpod_operator.api.names import MANAGED_BY, OWNER_LABEL
from graphpod_operator.cache.key import Key
from graphpod_operator.cache.pod import Pod
from graphpod_operator.cache.projections import Projection, project
from graphpod_operator.cache.service import Service
from graphpod_operator.cache.store import Address, Store, address, is_download
from graphpod_operator.kube.cluster import Cluster, Raw
from graphpod_operator.kube.resources import Resource
from graphpod_operator.watch.workqueue import KeyQueue

log = logging.getLogger(__name__)

SELECTOR = "=".join(MANAGED_BY)
"""Label selector of children and pods; services themselves are watched whole."""


def owned_by(name: str) -> str:
    """The label selector of everything that belongs to one service."""
    return f"{OWNER_LABEL}={name}"


def selector(resource: Resource) -> str:
    """The label selector with which a kind is listed and watched."""
    return "" if resource is Resource.InferenceService else SELECTOR


def scopes(namespaces: tuple[str, ...]) -> tuple[str | None, ...]:
    """What to list for these namespaces; without any, the whole cluster (None)."""
    return namespaces or (None,)


@dataclass(frozen=True, slots=True)
class Listed:
    """A full list of one kind, of one namespace or (None) of all, as it was at `version`."""

    resource: Resource
    namespace: str | None
    items: tuple[Projection, ...]
    version: int


class Informer:
    """Takes raw objects in, as an informer of client-go does, and puts the keys they concern into the queue if anything
    is new. `pod_gone` gets the uid of each pod that was deleted.
    """

    def __init__(self, store: Store, queue: KeyQueue, pod_gone: Callable[[str], None] = lambda uid: None) -> None:
        self._store = store
        self._queue = queue
        self._pod_gone = pod_gone
        self._since: dict[tuple[Resource, str | None], int] = {}

    def since(self, resource: Resource, namespace: str | None) -> int:
        """The newest version at which a kind was listed, in one namespace or (None) in all: a watch goes on from it."""
        return self._since[resource, namespace]

    async def ask(self, cluster: Cluster, resource: Resource, namespace: str | None) -> Listed:
        """Ask for a list, and take nothing in yet. Items carry no kind, and need none. Raises the port's errors."""
        listing = await cluster.list(resource, namespace, selector(resource), partial(self._read, resource))
        return Listed(resource, namespace, tuple(filter(None, listing.items)), listing.version)

    def changed(self, resource: Resource, raw: Raw) -> None:
        """An object was listed, added or modified."""
        identity = _identity(resource, raw)
        if identity is not None and not self._store.has(*identity):
            self._observe(project(resource, raw))

    def deleted(self, resource: Resource, raw: Raw) -> None:
        """An object was deleted, or lost our label."""
        if _identity(resource, raw) is not None:
            self._delete(project(resource, raw))

    def listed(self, listed: Listed) -> None:
        """A kind was listed: what the list does not have is deleted."""
        for item in self._missing(listed):
            self._delete(item)
        for item in listed.items:
            self._observe(item)
        place = listed.resource, listed.namespace
        self._since[place] = max(listed.version, self._since.get(place, 0))  # the resync hands its lists on late

    def news(self, listed: Listed) -> list[str]:
        """What the list has and the store does not know, in words."""
        gone = [f"{_name(item)} was deleted" for item in self._missing(listed)]
        known = self._store.has
        news = (item for item in listed.items if not known(address(item), item.uid, item.version))
        return gone + [f"{_name(item)} has changed" for item in news]

    def put_back(self, listed: Listed) -> str | None:
        """Detects an etcd restore: the first object that is older than the one we saw, in a list that is newer; in
        words. A history that only grows has no such object; one restored from a backup has, once it is as long again.
        """
        for item in listed.items:
            if item.version < (newest := self._store.newest(address(item), item.uid)) <= listed.version:
                return f"{_name(item)} is at version {item.version} after {newest}"
        return None

    def vanished(self, resource: Resource) -> None:
        """A kind is served no more, or no longer to us: what was known of it counts for nothing."""
        for item in self._store.all(resource):
            self._store.forget(item)
            self._enqueue(item.key)

    def _read(self, resource: Resource, raw: Raw) -> Projection | None:
        """The projection of a listed object: the very one that is known, where nothing has changed. None of what is no
        object.
        """
        if (identity := _identity(resource, raw)) is None:
            return None
        place, uid, version = identity
        known = self._store.at(place)
        same = known is not None and (known.uid, known.version) == (uid, version)
        return known if known is not None and same else project(resource, raw)

    def _missing(self, listed: Listed) -> list[Projection]:
        return self._store.missing(listed.resource, listed.namespace, listed.items, listed.version)

    def _observe(self, item: Projection) -> None:
        before = self._store.known(item)
        if not self._store.observe(item):
            return
        if item.breach is not None and (before is None or before.breach is None):
            log.warning("an object is skipped", extra={"child": _name(item), "why": item.breach})
        if isinstance(item, Service):
            # each event of it counts: to touch it is how a user asks for a look
            self._queue.add(item.key, first=not (isinstance(before, Service) and item.asks_as(before)))
        elif before is None or replace(before, version=item.version) != item:
            self._enqueue(before.key if before else None, item.key)
            self._wake(item)

    def _delete(self, item: Projection) -> None:
        if isinstance(item, Pod):
            self._pod_gone(item.uid)
        if self._store.delete(item):
            self._enqueue(item.key)
            self._wake(item)

    def _wake(self, item: Projection) -> None:
        """A Job that downloads weights, or a pod of one, is news for every service of its namespace that downloads. A
        key that no service has is queued as well: its turn deletes a Job that no service uses.
        """
        if is_download(item):
            _, namespace, name = address(item)
            waiting = (one.key for one in self._store.services() if one.key.namespace == namespace and one.downloads)
            self._enqueue(Key(namespace, name), *waiting)

    def _enqueue(self, *keys: Key | None) -> None:
        for key in {key for key in keys if key is not None}:
            self._queue.add(key)


def _identity(resource: Resource, raw: Raw) -> tuple[Address, str, int] | None:
    """Which object it is, and of which version; None, and a line in the log, where it does not say so."""
    match raw:
        case {"metadata": {"namespace": str(place), "name": str(name), "uid": str(uid), "resourceVersion": str(text)}}:
            if text.isdecimal():
                return (resource, place, name), uid, int(text)
    log.warning("an object without identity is ignored", extra={"kind": resource.kind})
    return None


def _name(item: Projection) -> str:
    resource, namespace, name = address(item)
    return f"{resource.kind} {namespace}/{name}"


async def fill(cluster: Cluster, informer: Informer, namespaces: tuple[str, ...], kinds: Iterable[Resource]) -> None:
    """List kinds into the informer. Without this, an object not heard of yet would pass for one that is absent. Raises
    the port's errors; no list goes on after that.
    """
    # one after another: side by side, the failure of one list could hide that this task was cancelled meanwhile
    for resource in kinds:
        for scope in scopes(namespaces):
            informer.listed(await informer.ask(cluster, resource, scope))
