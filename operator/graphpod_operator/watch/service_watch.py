"""The watch of services, as the main loop sees it. kopf watches, on a loop of its own (`handlers`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from graphpod_operator.kube.cluster import ApiError, Raw
from graphpod_operator.kube.resources import Resource
from graphpod_operator.watch.informer import Informer, scopes

log = logging.getLogger(__name__)

SERVED_SECONDS = 2.0
"""Between two looks whether the kind is served."""

Versions = Mapping[str | None, int]
"""Versions of lists of services, each of one namespace or (None) of all."""


class ServiceWatch:
    """Takes what kopf saw, and says when it may look. `listed` is called for each object of a fresh list, and once a
    watch that failed goes on; `failed` for each that did; `served`: whether the API server has the kind.
    """

    def __init__(
        self,
        informer: Informer,
        namespaces: tuple[str, ...],
        listed: Callable[[], None],
        failed: Callable[[], None],
        served: Callable[[], Awaitable[bool]],
    ) -> None:
        self._informer = informer
        self._namespaces = namespaces
        self._listed = listed
        self._failed = failed
        self._served = served
        self._filled = asyncio.Event()
        self._first = True
        self._cut = False

    def begin(self) -> None:
        """The store is filled: from now on, what is seen adds to it."""
        self._filled.set()

    def seen(self, event: str | None, raw: Raw) -> None:
        """An event of a service: its type, None where it was listed, and its object."""
        if event is None:
            self._listed()
        if event == "DELETED":
            self._informer.deleted(Resource.InferenceService, raw)
        else:
            self._informer.changed(Resource.InferenceService, raw)

    def failed(self) -> None:
        """The watch ended with an error."""
        self._cut = True
        self._failed()

    async def may_watch(self) -> Versions:
        """Return once the store is filled and the API server serves the kind, which is not so after somebody deleted
        its CRD. kopf looks for the kind only as it begins, and would wait for ever without it.

        The first watch goes on from these versions, those of the lists that filled the store. A later one gets none,
        and begins with a list of its own: what it missed is unknown.
        """
        await self._filled.wait()
        waits = False
        while not await self._is_served():
            if not waits:
                log.error("the API server does not serve InferenceServices; install the CRD: graphpod crd")
            waits = True
            await asyncio.sleep(SERVED_SECONDS)
        first, self._first = self._first, False
        if self._cut:
            self._cut = False
            self._listed()  # also where nothing is left to list
            return {}
        since = self._informer.since
        return {scope: since(Resource.InferenceService, scope) for scope in scopes(self._namespaces)} if first else {}

    async def _is_served(self) -> bool:
        try:
            return await self._served()
        except ApiError:
            return False
