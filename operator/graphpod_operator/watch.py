"""The watches: kopf lists and watches, we put what it delivers into the feed. Nothing else of kopf is used.

Only `on.event` handlers exist, so kopf adds no finalizer and no annotation, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import kopf

from graphpod_operator.feed import Feed, selector
from graphpod_operator.resource import Resource

PREFIX = "operator.graphpod.dev"
"""Of annotations and finalizers, should a later handler make kopf write any."""


def settings() -> kopf.OperatorSettings:
    """kopf's settings; each differs from kopf's default for the reason beside it."""
    chosen = kopf.OperatorSettings()
    chosen.scanning.disabled = True  # our kinds are known: no right to list CRDs and namespaces is needed
    chosen.peering.standalone = True  # kopf's peering pauses both sides when they meet
    chosen.posting.enabled = False  # we write our own events, each once
    chosen.watching.server_timeout = 290  # s; a watch that froze ends anyway
    chosen.watching.client_timeout = 320
    chosen.watching.connect_timeout = 10
    chosen.watching.chunk_size = 500  # objects; keeps memory flat while listing
    chosen.networking.request_timeout = 30  # s; 300 would hide an API server that is gone
    chosen.queueing.worker_limit = None  # handlers only enqueue; the limit on work is that of our workers
    chosen.persistence.finalizer = f"{PREFIX}/unused"
    chosen.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=PREFIX)
    chosen.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=PREFIX)
    chosen.process.ultimate_exiting_timeout = 20  # s; below the 30 s a pod gets
    for resource in Resource:
        if labels := selector(resource):
            chosen.watching.label_selectors[_address(resource)] = labels
    return chosen


def registry(feed: Feed) -> kopf.OperatorRegistry:
    """Handlers that put every event of every kind into the feed."""
    handlers = kopf.OperatorRegistry()
    kopf.on.login(registry=handlers)(_login)
    for resource in Resource:
        kopf.on.event(*_address(resource), registry=handlers, id=resource.kind)(_handler(feed, resource))
    return handlers


async def run(feed: Feed, namespaces: tuple[str, ...]) -> None:
    """Watch until cancelled, SIGTERM comes, or a watch fails for good.

    There is no stop flag: kopf's wait for one outlives a signal, and would hold up every exit for 5 s.
    """
    await kopf.operator(
        registry=registry(feed),
        settings=settings(),
        clusterwide=not namespaces,
        namespaces=namespaces,
    )


def _handler(feed: Feed, resource: Resource) -> Callable[..., Coroutine[Any, Any, None]]:
    # a closure: kopf passes keywords of its own, `resource` among them, which would override those of a partial
    async def on_event(event: Mapping[str, Any], **_: Any) -> None:
        if event["type"] == "DELETED":
            feed.deleted(resource, event["object"])
        else:
            feed.changed(resource, event["object"])

    return on_event


def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)


def _address(resource: Resource) -> tuple[str, str, str]:
    return resource.group, resource.version, resource.plural
