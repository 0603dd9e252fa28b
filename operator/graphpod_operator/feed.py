"""From raw objects to the store and the queue: the way in for watch events and lists."""

from __future__ import annotations

import asyncio

from graphpod_operator.observe import Key, Pod, Projection, Raw, project
from graphpod_operator.port import Cluster, Listing
from graphpod_operator.queue import KeyQueue
from graphpod_operator.render.subject import MANAGED_BY
from graphpod_operator.resource import Resource
from graphpod_operator.store import Store
from graphpod_operator.warmup import Warmups

SELECTOR = "=".join(MANAGED_BY)
"""Label selector of children and pods; services themselves are watched whole."""


def selector(resource: Resource) -> str:
    """The label selector with which a kind is listed and watched."""
    return "" if resource is Resource.InferenceService else SELECTOR


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

    def listed(self, resource: Resource, namespace: str | None, listing: Listing) -> None:
        """A kind was listed, in one namespace or (None) in all: what the list does not have is deleted."""
        # the items of a list carry no kind, and need none
        items = [project(resource, raw) for raw in listing.items]
        for item in self._store.missing(resource, namespace, items, listing.version):
            self._delete(item)
        for item in items:
            self._observe(item)

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


async def fill(cluster: Cluster, feed: Feed, namespaces: tuple[str, ...]) -> None:
    """List every kind into the feed. Without this, an object not heard of yet would pass for one that is absent."""
    scopes: tuple[str | None, ...] = namespaces or (None,)

    async def take(resource: Resource, namespace: str | None) -> None:
        feed.listed(resource, namespace, await cluster.list(resource, namespace, selector(resource)))

    await asyncio.gather(*(take(resource, scope) for resource in Resource for scope in scopes))
