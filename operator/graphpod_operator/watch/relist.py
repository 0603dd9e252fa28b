"""The resync: list everything again, and see whether the watches had delivered it.

A watch that kopf opened again may have missed deletions, and one that froze delivers nothing at all. What a list has
and the store has not is given 10 s to come by the watch; what is still missing then contradicts the watch. One
contradiction may be a cut; two in a row, at least 2 min apart, are a watch that does not live, and a reason to restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from graphpod_operator.kube.cluster import ApiError, Cluster, Unreached
from graphpod_operator.kube.resources import OPTIONAL, Resource
from graphpod_operator.watch.informer import Informer, Listed, scopes
from graphpod_operator.watch.optional_kinds import OptionalKinds

log = logging.getLogger(__name__)

EVERY_SECONDS = 600.0
DOUBT_SECONDS = 120.0
"""Until the next look after a contradiction."""
DELIVERY_SECONDS = 10.0
"""Time for the watches to deliver what a list has."""
RETRY_SECONDS = 10.0
SETTLE_SECONDS = 5.0
"""After the watch of services listed again, until the list that finds what it missed."""


@dataclass(slots=True)
class Trust:
    """Whether the watches are believed. Pure, but for what it remembers."""

    doubt: str | None = None
    """What contradicted them at the last look."""
    sickness: str | None = None
    """Why a restart would help, or None."""

    def judge(self, contradiction: str | None) -> None:
        """A look at what the watches delivered ended; looks after a contradiction are DOUBT_SECONDS later."""
        if contradiction is not None and self.doubt is not None:
            self.sickness = f"the watch cache is stale: {contradiction}"
        self.doubt = contradiction
        if contradiction is None:
            self.sickness = None


class Relist:
    """Lists, compares, and hands on what is new. One request at a time: there is no hurry."""

    def __init__(
        self,
        cluster: Cluster,
        informer: Informer,
        namespaces: tuple[str, ...],
        kinds: OptionalKinds,
        done: Callable[[], None],
    ) -> None:
        self.trust = Trust()
        self._cluster = cluster
        self._informer = informer
        self._namespaces = namespaces
        self._kinds = kinds
        self._done = done
        self._asked = asyncio.Event()

    def soon(self) -> None:
        """The watch of services listed again: which were deleted in between, it does not know."""
        self._asked.set()

    async def run(self) -> None:
        """Resync for ever, and call `done` after each that was due by time."""
        now = asyncio.get_running_loop().time
        due_at = now() + EVERY_SECONDS
        while True:
            due = await self._wait(due_at - now())
            try:
                self.trust.judge(await self.look(self._kinds.watched if due else (Resource.InferenceService,)))
            except ApiError as error:
                self._kinds.soon()  # a kind that went takes the resync with it
                log.warning("resync failed; trying again", extra={"error": error, "seconds": RETRY_SECONDS})
                due_at = now() + RETRY_SECONDS
                continue
            if due:
                due_at = now() + EVERY_SECONDS
                self._done()
            if self.trust.doubt is not None:
                extra = {"why": self.trust.doubt, "seconds": DOUBT_SECONDS}
                log.warning("the watch cache may be stale; listing again", extra=extra)
                due_at = now() + DOUBT_SECONDS

    async def look(self, kinds: Iterable[Resource]) -> str | None:
        """List these kinds into the informer, but optional ones whose list fails. What contradicts the watches, or all
        that is known, in words, or None.
        """
        listed: list[Listed] = []
        for resource, scope in itertools.product(kinds, scopes(self._namespaces)):
            before = self._informer.since(resource, scope)
            try:
                one = await self._informer.ask(self._cluster, resource, scope)
            except ApiError as error:
                if resource not in OPTIONAL or isinstance(error, Unreached):
                    raise
                # its conversion webhook or its own API server may be down, which says nothing about other watches
                self._kinds.soon()
                log.warning("resync leaves out an optional kind", extra={"kind": resource.kind, "error": error})
                continue
            listed.append(one)
            # restored from a backup, what is known counts as newer than what is, and the two are not to be mixed
            if one.version < before:
                return f"the API server's history went back from {before} to {one.version}"
            if (older := self._informer.put_back(one)) is not None:
                return f"the API server's history went back: {older}"
        contradiction = None
        if any(self._informer.news(one) for one in listed):
            await asyncio.sleep(DELIVERY_SECONDS)
            missed = [news for one in listed for news in self._informer.news(one)]
            contradiction = f"{missed[0]}, and {len(missed) - 1} more things" if missed else None
        for one in listed:
            self._informer.listed(one)
        return contradiction

    async def _wait(self, seconds: float) -> bool:
        """Until it is time (True), or services were listed again by their watch; a doubt has its own time."""
        if self.trust.doubt is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._asked.wait()
                await asyncio.sleep(SETTLE_SECONDS)
                self._asked.clear()
                return False
        else:
            await asyncio.sleep(seconds)
        return True
