"""The watches of all that belongs to services: each goes on where the list that filled the store ended.

The services themselves are watched by kopf (`service_watch`), which lists them for itself first, and has a task
for every object. For a thousand services' children and pods that was more than all the rest of a restart.

A watch that was cut goes on from the last version it delivered, so nothing is missed. Where the API server does not
remember that version any more, or failed at it, the kind is listed again, and the list shows what was deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from graphpod_operator.kube.cluster import ApiError, Cluster, Expired, Raw, ServerRefused, Unavailable
from graphpod_operator.kube.resources import CHILDREN, OPTIONAL, Resource
from graphpod_operator.watch.informer import Informer, scopes, selector
from graphpod_operator.watch.optional_kinds import OptionalKinds

log = logging.getLogger(__name__)

FOLLOWED = (*CHILDREN, Resource.Job, Resource.Pod)
FIRST_PAUSE = 0.5
"""Seconds until a watch that failed is opened again; twice as many each further time."""
LONGEST_PAUSE = 4.0
"""More would leave an API server that is back unseen."""
BRIEF_SECONDS = 1.0
"""A watch that delivered nothing and ended sooner has failed, though it ended well."""
DOUBTED_FAILURES = 3
"""In a row, until an optional kind is looked at: a restart of the API server causes some, too."""
LONGEST_REFUSED = 30.0
"""Of a watch that was refused: it takes somebody who grants it."""

Tell = Callable[[str, Raw], None]
"""Called for an event: its type and its object. Of a BOOKMARK's object only the version counts."""


class Watches(Protocol):
    """The API server's watches."""

    async def watch(self, resource: Resource, namespace: str | None, selector: str, since: int, tell: Tell) -> None:
        """Tell what happens to a kind, in one namespace or (None) in all, since a version, until the API server ends
        the watch, which it does after minutes, or is silent for long. Raises Expired, Unavailable or Refused.
        """
        ...


class ChildWatches:
    """Keeps the store up to date with every kind but InferenceService. `failed` is called for each watch that the API
    server ended with an error, or did not begin.
    """

    def __init__(
        self,
        watches: Watches,
        cluster: Cluster,
        informer: Informer,
        namespaces: tuple[str, ...],
        kinds: OptionalKinds,
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        self._watches = watches
        self._cluster = cluster
        self._informer = informer
        self._namespaces = namespaces
        self._kinds = kinds
        self._failed = failed

    def all(self) -> list[Coroutine[Any, Any, None]]:
        """A coroutine for each watch, to run until cancelled."""
        return [self.follow(resource, scope) for resource in FOLLOWED for scope in scopes(self._namespaces)]

    async def follow(self, resource: Resource, namespace: str | None) -> None:
        """Follow one kind, of one namespace or (None) of all, for ever; an optional one while it is there. It has been
        listed into the informer before.
        """
        delivered = failures = 0
        expired = False

        def tell(event: str, raw: Raw) -> None:
            nonlocal delivered, failures
            delivered, failures = int(raw["metadata"]["resourceVersion"]), 0
            if event == "DELETED":
                self._informer.deleted(resource, raw)
            elif event != "BOOKMARK":
                self._informer.changed(resource, raw)

        now = asyncio.get_running_loop().time
        while True:
            await self._kinds.present(resource)
            began = now()
            try:
                if expired:
                    self._informer.listed(await self._informer.ask(self._cluster, resource, namespace))
                    expired = False
                since = max(delivered, self._informer.since(resource, namespace))
                await self._watches.watch(resource, namespace, selector(resource), since, tell)
                if delivered <= since and now() - began < BRIEF_SECONDS:
                    raise Unavailable(0, f"the watch of {resource.plural} ended at once")
                failures = 0
            except ApiError as error:
                expired = expired or isinstance(error, Expired) or error.status >= 500
                await self._pause(resource, error, failures)
                failures += 1

    async def _pause(self, resource: Resource, error: ApiError, failures: int) -> None:
        """Wait after a failure, longer after each in a row. The first is logged, and each that the server reports."""
        answered = error.status != 0 and not isinstance(error, Expired)
        longest = LONGEST_REFUSED if isinstance(error, ServerRefused) else LONGEST_PAUSE
        pause = min(longest, FIRST_PAUSE * 2.0 ** min(failures, 16))
        if answered:
            self._failed()
        if answered or failures == 0:
            delivered = {"kind": resource.kind, "error": error, "seconds": pause}
            log.warning("a watch ended; opening it again", extra=delivered)
        if resource in OPTIONAL and (isinstance(error, ServerRefused) or failures == DOUBTED_FAILURES):
            self._kinds.soon()  # so it fails when the kind has gone, or cannot be listed
        await asyncio.sleep(pause)
