"""The watch of services: kopf lists and watches, we put what it delivers into the feed. Nothing else of kopf is used.

Only an `on.event` handler exists, so kopf adds no finalizer and no annotation, and writes nothing. An error it takes
for fatal (an ERROR event other than 410, a list that was refused) ends its watch and not the operator: it begins anew.
What belongs to services is watched by `child_watches`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any

import aiohttp
import kopf

from graphpod_operator.kube.port import ApiError
from graphpod_operator.kube.resources import Resource
from graphpod_operator.watch.bounded_session import bounded
from graphpod_operator.watch.feed import Feed

log = logging.getLogger("graphpod_operator.watch")

SERVICES = Resource.InferenceService

PREFIX = "operator.graphpod.dev"
"""Of annotations, should a later handler make kopf write any."""
NO_FINALIZER = "no object has this finalizer"
"""kopf removes its finalizer from each object that has it, without our Lease and rights. A user may add any finalizer
that the API server takes; it takes no name with spaces.
"""

PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds until a watch that failed begins anew, by how often it has; the last stays."""
SERVED_SECONDS = 2.0
"""Between two looks whether the kind is served."""
HEALTHY_SECONDS = 60.0
"""A watch that lasted as long failed for the first time."""


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


def settings() -> kopf.OperatorSettings:
    """kopf's settings; each differs from kopf's default for the reason beside it."""
    chosen = kopf.OperatorSettings()
    chosen.scanning.disabled = True  # our kinds are known: no right to list CRDs and namespaces is needed
    chosen.peering.standalone = True  # kopf's peering pauses both sides when they meet
    chosen.posting.enabled = False  # we write our own events, each once
    chosen.watching.server_timeout = 290  # s; a watch that froze ends anyway
    chosen.watching.client_timeout = 320
    chosen.watching.connect_timeout = 10
    chosen.watching.chunk_size = 200  # objects; keeps memory flat while listing
    chosen.queueing.idle_timeout = 0.05  # s; for so long the last event of an object is held after it was told
    chosen.networking.request_timeout = 30  # s; 300 would hide an API server that is gone
    chosen.networking.error_backoffs = (0.5, 1, 2, 4, 4)  # s; up to 21 would leave one that is back unseen
    chosen.queueing.worker_limit = None  # handlers only enqueue; the limit on work is that of our workers
    chosen.persistence.finalizer = NO_FINALIZER
    chosen.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=PREFIX)
    chosen.persistence.diffbase_storage = NoDifferences()
    chosen.process.ultimate_exiting_timeout = None  # never: it would come amid the watch after one that failed
    return chosen


def registry(feed: Feed, listed: Callable[[], None], too_long: Callable[[], bool]) -> kopf.OperatorRegistry:
    """A handler that puts every event into the feed; `listed` is called for objects of a fresh list, `too_long` for one
    that is to be asked for in shorter pages, which it can promise.
    """
    handlers = kopf.OperatorRegistry()
    kopf.on.login(registry=handlers)(_login(bounded(too_long)))
    kopf.on.event(SERVICES.group, SERVICES.version, SERVICES.plural, registry=handlers)(_handler(feed, listed))
    return handlers


async def run(
    feed: Feed,
    namespaces: tuple[str, ...],
    listed: Callable[[], None],
    failed: Callable[[], None],
    served: Callable[[], Awaitable[bool]],
) -> None:
    """Watch until cancelled or SIGTERM comes. `failed` is called whenever the watch ended with an error: it begins
    again, once the kind is `served`. kopf looks for the kind only as it begins, and would wait for ever without it.

    There is no stop flag: kopf's wait for one outlives a signal, and would hold up every exit for 5 s.
    """
    failures = 0
    while True:
        began = asyncio.get_running_loop().time()
        chosen = settings()
        try:
            await kopf.operator(
                registry=registry(feed, listed, partial(_shorten, chosen)),
                settings=chosen,
                clusterwide=not namespaces,
                namespaces=namespaces,
            )
        except Exception as error:  # noqa: BLE001  kopf names none of the errors that end it
            if asyncio.get_running_loop().time() - began > HEALTHY_SECONDS:
                failures = 0
            pause = PAUSES[min(failures, len(PAUSES) - 1)]
            failures += 1
            log.error("the watch of services ended; beginning anew", extra={"error": error, "seconds": pause})
            failed()
            await asyncio.sleep(pause)
            await _until_served(served)
            listed()  # also where nothing is left to list
        else:
            return


async def _until_served(served: Callable[[], Awaitable[bool]]) -> None:
    """Return once the API server serves the kind, which is not so after somebody deleted its CRD."""
    waits = False
    while not await _is_served(served):
        if not waits:
            log.error("the API server does not serve InferenceServices; install the CRD: graphpod crd")
        waits = True
        await asyncio.sleep(SERVED_SECONDS)


async def _is_served(served: Callable[[], Awaitable[bool]]) -> bool:
    try:
        return await served()
    except ApiError:
        return False


def _handler(feed: Feed, listed: Callable[[], None]) -> Callable[..., Coroutine[Any, Any, None]]:
    async def on_event(event: Mapping[str, Any], **_: Any) -> None:
        if event["type"] is None:
            listed()
        if event["type"] == "DELETED":
            feed.deleted(SERVICES, event["object"])
        else:
            feed.changed(SERVICES, event["object"])

    return on_event


def _shorten(chosen: kopf.OperatorSettings) -> bool:
    """Have kopf ask for pages of half as many objects. Whether they were not of one object already."""
    size = chosen.watching.chunk_size or 1
    chosen.watching.chunk_size = max(1, size // 2)
    return size > 1


def _login(responses: type[aiohttp.ClientResponse]) -> Callable[..., Coroutine[Any, Any, kopf.AiohttpSession | None]]:
    made: dict[kopf.ConnectionInfo, kopf.AiohttpSession] = {}

    async def login(**kwargs: Any) -> kopf.AiohttpSession | None:
        """The connection that kopf would make, but for the class of its responses.

        The same credentials are the same connection: so kopf knows those that were refused, and ends the watch. With
        another connection for them it would try them without a pause, for ever.
        """
        found = kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)
        if found is None:
            return None
        if found not in made:
            made.clear()
            made[found] = _connection(found, responses)
        return made[found]

    return login


def _connection(found: kopf.ConnectionInfo, responses: type[aiohttp.ClientResponse]) -> kopf.AiohttpSession:
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=found.as_ssl_context()),
        headers={**found.as_http_headers(), "Accept-Encoding": "identity"},
        proxy=found.proxy_url,
        trust_env=found.trust_env,
        response_class=responses,
    )
    return kopf.AiohttpSession(
        server=found.server,
        default_namespace=found.default_namespace,
        expiration=found.expiration,
        aiohttp_session=session,
    )
