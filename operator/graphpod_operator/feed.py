"""From raw objects to the store and the queue: the way in for watch events and lists."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Self

from graphpod_operator.observe import Key, Pod, Projection, Raw, project
from graphpod_operator.port import Cluster
from graphpod_operator.queue import KeyQueue
from graphpod_operator.render.subject import MANAGED_BY, OWNER_LABEL
from graphpod_operator.resource import Resource
from graphpod_operator.store import Store, address
from graphpod_operator.warmup import Warmups

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

    @classmethod
    async def now(cls, cluster: Cluster, resource: Resource, namespace: str | None) -> Self:
        """Ask for it. Items carry no kind, and need none. Raises the port's errors."""
        listing = await cluster.list(resource, namespace, selector(resource), partial(project, resource))
        return cls(resource, namespace, listing.items, listing.version)


class Feed:
    """Takes raw objects in, and puts the keys they concern into the queue if anything is new."""

    def __init__(self, store: Store, queue: KeyQueue, warmups: Warmups) -> None:
        self._store = store
        self._queue = queue
        self._warmups = warmups

    def changed(self, resource: Resource, raw: Raw) -> None:
        """An object was listed, added or modified."""
        self._observe(project(resource, raw))

    def deleted(self, resource: Resource, raw: Raw) -> None:
        """An object was deleted, or lost our label."""
        self._delete(project(resource, raw))

    def listed(self, listed: Listed) -> None:
        """A kind was listed: what the list does not have is deleted."""
        for item in self._missing(listed):
            self._delete(item)
        for item in listed.items:
            self._observe(item)

    def news(self, listed: Listed) -> list[str]:
        """What the list tells and the store does not know, in words."""
        gone = [f"{_name(item)} was deleted" for item in self._missing(listed)]
        return gone + [f"{_name(item)} has changed" for item in listed.items if self._store.is_news(item)]

    def vanished(self, resource: Resource) -> None:
        """A kind is served no more, or no longer to us: what was known of it counts for nothing."""
        for item in self._store.all(resource):
            self._store.forget(item)
            self._enqueue(item.key)

    def _missing(self, listed: Listed) -> list[Projection]:
        return self._store.missing(listed.resource, listed.namespace, listed.items, listed.version)

    def _observe(self, item: Projection) -> None:
        before = self._store.known(item)
        if self._store.observe(item):
            self._enqueue(before.key if before else None, item.key)

    def _delete(self, item: Projection) -> None:
        if isinstance(item, Pod):
            self._warmups.forget(item.uid)
        if self._store.delete(item):
            self._enqueue(item.key)

    def _enqueue(self, *keys: Key | None) -> None:
        for key in {key for key in keys if key is not None}:
            self._queue.add(key)


def _name(item: Projection) -> str:
    resource, namespace, name = address(item)
    return f"{resource.kind} {namespace}/{name}"


async def fill(cluster: Cluster, feed: Feed, namespaces: tuple[str, ...], kinds: Iterable[Resource]) -> None:
    """List kinds into the feed. Without this, an object not heard of yet would pass for one that is absent. Raises the
    port's errors; no list goes on after that.
    """
    # one after another, and no tasks: kopf, when it ends, cancels those that are younger than itself
    for resource in kinds:
        for scope in scopes(namespaces):
            listed = await Listed.now(cluster, resource, scope)
            feed.listed(listed)
