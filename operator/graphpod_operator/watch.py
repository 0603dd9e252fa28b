"""The watches: kopf lists and watches, we put what it delivers into the feed. Nothing else of kopf is used.

Only `on.event` handlers exist, so kopf adds no finalizer and no annotation, and writes nothing. An error it takes for
fatal (an ERROR event other than 410, a list that was refused) ends its watches and not the operator: they begin anew,
and so they do when an optional kind comes or goes, since kopf's own look for kinds needs the right to read CRDs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

import kopf

from graphpod_operator.feed import Feed, selector
from graphpod_operator.kinds import Kinds
from graphpod_operator.resource import Resource

log = logging.getLogger(__name__)

PREFIX = "operator.graphpod.dev"
"""Of annotations and finalizers, should a later handler make kopf write any."""

PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds until watches that failed begin anew, by how often they have; the last stays."""
ENDING_SECONDS = 20.0
"""Most that watches may take to end; the next do not wait for longer."""
HEALTHY_SECONDS = 60.0
"""Watches that lasted as long failed for the first time."""


class NoDifferences(kopf.DiffBaseStorage):
    """kopf copies every object of every event to find out what changed in it since a handler succeeded. No handler of
    ours asks, so nothing is copied, compared or stored.
    """

    def build(self, **_: Any) -> Any:
        """What is compared."""
        return {}

    def fetch(self, **_: Any) -> None:
        """What was stored."""

    def store(self, **_: Any) -> None:
        """Store what was handled."""


def settings(kinds: Iterable[Resource]) -> kopf.OperatorSettings:
    """kopf's settings; each differs from kopf's default for the reason beside it."""
    chosen = kopf.OperatorSettings()
    chosen.scanning.disabled = True  # our kinds are known: no right to list CRDs and namespaces is needed
    chosen.peering.standalone = True  # kopf's peering pauses both sides when they meet
    chosen.posting.enabled = False  # we write our own events, each once
    chosen.watching.server_timeout = 290  # s; a watch that froze ends anyway
    chosen.watching.client_timeout = 320
    chosen.watching.connect_timeout = 10
    chosen.watching.chunk_size = 200  # objects; keeps memory flat while listing
    chosen.queueing.idle_timeout = 0.5  # s; for so long the last event of an object is held after it was told
    chosen.networking.request_timeout = 30  # s; 300 would hide an API server that is gone
    chosen.networking.error_backoffs = (0.5, 1, 2, 4, 4)  # s; up to 21 would leave one that is back unseen
    chosen.queueing.worker_limit = None  # handlers only enqueue; the limit on work is that of our workers
    chosen.persistence.finalizer = f"{PREFIX}/unused"
    chosen.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=PREFIX)
    chosen.persistence.diffbase_storage = NoDifferences()
    chosen.process.ultimate_exiting_timeout = 20  # s; below the 30 s a pod gets
    for resource in kinds:
        if labels := selector(resource):
            chosen.watching.label_selectors[_address(resource)] = labels
    return chosen


def registry(feed: Feed, kinds: Iterable[Resource], listed: Callable[[], None]) -> kopf.OperatorRegistry:
    """Handlers that put every event of every kind into the feed; `listed` is called for objects of a fresh list."""
    handlers = kopf.OperatorRegistry()
    kopf.on.login(registry=handlers)(_login)
    for resource in kinds:
        kopf.on.event(*_address(resource), registry=handlers, id=resource.kind)(_handler(feed, resource, listed))
    return handlers


async def run(
    feed: Feed,
    namespaces: tuple[str, ...],
    kinds: Kinds,
    listed: Callable[[], None],
    ended: Callable[[Exception | None], None],
) -> None:
    """Watch until cancelled or SIGTERM comes. `ended` is called whenever the watches ended with an error, or (None)
    because an optional kind came or went: they begin anew.

    There is no stop flag: kopf's wait for one outlives a signal, and would hold up every exit for 5 s.
    """
    failures = 0
    while True:
        began = asyncio.get_running_loop().time()
        try:
            if not await _watch(feed, namespaces, kinds, listed):
                return
        except Exception as error:  # noqa: BLE001  kopf names none of the errors that end it
            if asyncio.get_running_loop().time() - began > HEALTHY_SECONDS:
                failures = 0
            pause = PAUSES[min(failures, len(PAUSES) - 1)]
            failures += 1
            log.error("the watches ended; beginning anew", extra={"error": error, "seconds": pause})
            ended(error)
            await asyncio.sleep(pause)
        else:
            ended(None)


async def _watch(feed: Feed, namespaces: tuple[str, ...], kinds: Kinds, listed: Callable[[], None]) -> bool:
    """Watch what is there. True: an optional kind came or went; False: a signal came. Raises what ended the watches."""
    kinds.changed.clear()
    watched = kinds.watched
    chosen = settings(watched)
    # kopf ends the tasks it finds younger than itself, so this one is made first
    change = asyncio.create_task(kinds.changed.wait())
    watching = asyncio.create_task(
        kopf.operator(
            registry=registry(feed, watched, listed),
            settings=chosen,
            clusterwide=not namespaces,
            namespaces=namespaces,
        )
    )
    try:
        await asyncio.wait((change, watching), return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()
            return False
        chosen.process.ultimate_exiting_timeout = None  # kopf would kill a process whose watches are to begin anew
        return True
    finally:
        change.cancel()
        watching.cancel()
        await asyncio.wait((change, watching), timeout=ENDING_SECONDS)


def _handler(feed: Feed, resource: Resource, listed: Callable[[], None]) -> Callable[..., Coroutine[Any, Any, None]]:
    # a closure: kopf passes keywords of its own, `resource` among them, which would override those of a partial
    async def on_event(event: Mapping[str, Any], **_: Any) -> None:
        if event["type"] is None:
            listed()
        if event["type"] == "DELETED":
            feed.deleted(resource, event["object"])
        else:
            feed.changed(resource, event["object"])

    return on_event


def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)


def _address(resource: Resource) -> tuple[str, str, str]:
    return resource.group, resource.version, resource.plural
