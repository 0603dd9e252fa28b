"""Optional kinds: those whose CRD belongs to others, and may be absent, come and go while the operator runs.

A kind is there when the API server serves it and lets the operator list it. What is there is listed before anything is
decided by it, watched, and made; what is not is left out of every plan, with the reason, and looked for again. A kind
whose list fails (its conversion webhook or its own API server is down) holds up nothing else: one that is new is left
out, too, and of one that was listed before, what is known stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection
from types import MappingProxyType
from typing import Protocol

from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.kube.absent_kinds import Absence, Absent, left_alone, not_listed, not_served, refused
from graphpod_operator.kube.cluster import ApiError, Cluster, Expired, ServerRefused, Unreached
from graphpod_operator.kube.resources import OPTIONAL, WATCHED, Resource
from graphpod_operator.watch.informer import Informer, fill

log = logging.getLogger(__name__)

EVERY_SECONDS = 60.0
"""Between two looks: so long a CRD that came may go unnoticed."""
RETRY_SECONDS = 10.0
"""The same while the list of a kind fails."""


class Discovery(Protocol):
    """What the API server says it serves. Every user may ask."""

    async def serves(self, kinds: Collection[Resource]) -> frozenset[Resource]:
        """Those of `kinds` that are served. May raise Unavailable or Refused."""
        ...


class Gone(ApiError):
    """A write failed because the kind of its object is not there any more; the next plan leaves it out."""


class OptionalKinds:
    """Which optional kinds are there. `without`: those that the operator is configured not to use; `done` is called
    whenever one came or went.
    """

    def __init__(
        self,
        discovery: Discovery,
        cluster: Cluster,
        informer: Informer,
        namespaces: tuple[str, ...] = (),
        without: Collection[Resource] = (),
        done: Callable[[], None] = lambda: None,
    ) -> None:
        self._discovery = discovery
        self._cluster = cluster
        self._informer = informer
        self._namespaces = namespaces
        self._done = done
        self._sought = tuple(kind for kind in OPTIONAL if kind not in without)
        self._absent = {kind: not_served(kind) if kind in self._sought else left_alone(kind) for kind in OPTIONAL}
        self._unlisted: set[Resource] = set()
        self._asked = asyncio.Event()
        self._looking = asyncio.Lock()
        self._news = asyncio.Event()
        """Set, and replaced, when a kind came or went."""

    @property
    def absent(self) -> Absent:
        """The optional kinds that are not there."""
        return MappingProxyType(self._absent)

    @property
    def unlisted(self) -> frozenset[Resource]:
        """The kinds that are served, and whose last list failed."""
        return frozenset(self._unlisted)

    @property
    def watched(self) -> tuple[Resource, ...]:
        """Every kind that the store holds now."""
        return (*WATCHED, *(kind for kind in OPTIONAL if kind not in self._absent))

    async def present(self, kind: Resource) -> None:
        """Wait until a kind is there, and listed."""
        while kind in self._absent:
            await self._news.wait()

    def soon(self) -> None:
        """Something failed as it does when a kind has gone: look again at once."""
        self._asked.set()

    async def run(self) -> None:
        """Look for ever."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(EVERY_SECONDS, RETRY_SECONDS) if self._unlisted else EVERY_SECONDS):
                    await self._asked.wait()
            doubted = self._asked.is_set()
            self._asked.clear()
            try:
                await self.look(doubted=doubted)
            except ApiError as error:
                extra = {"error": error, "seconds": EVERY_SECONDS}
                log.warning("optional kinds not found out; trying again", extra=extra)

    async def look(self, *, doubted: bool = False) -> bool:
        """Ask which are served, and list what came (when `doubted`: all of them) into the informer, with those whose
        last list failed. Whether anything came or went, or is absent for another reason. Raises Unavailable or Expired
        when the API server itself does not say, and then nothing has changed. One look at a time: another waits.
        """
        async with self._looking:
            return await self._look(doubted)

    async def _look(self, doubted: bool) -> bool:
        try:
            served = await self._discovery.serves(self._sought)
        except ServerRefused:
            served = frozenset(self._sought)  # without the right to discover, lists say what is served
        trusted = frozenset[Resource]() if doubted else served.difference(self._absent, self._unlisted)
        found = {kind: None if kind in trusted else await self._absence(kind, kind in served) for kind in self._sought}
        changed = False
        for kind, absence in found.items():
            if self._fails(kind, absence) and kind not in self._absent:
                continue
            before = self._absent.get(kind)
            changed = changed or _reason(before) is not _reason(absence)
            if (absence is None) != (before is None):
                extra = {"kind": kind.kind, "why": absence.what if absence is not None else "it is served"}
                log.info("optional kind %s", "comes" if absence is None else "goes", extra=extra)
            if absence is None:
                self._absent.pop(kind, None)
            else:
                self._absent[kind] = absence
                self._informer.vanished(kind)
        if changed:
            self._news.set()
            self._news = asyncio.Event()
            self._done()
        return changed

    def _fails(self, kind: Resource, absence: Absence | None) -> bool:
        """Whether the list of a kind failed, and then that is logged."""
        if absence is None or absence.reason is not Reason.KindNotListed:
            self._unlisted.discard(kind)
            return False
        self._unlisted.add(kind)
        extra = {"kind": kind.kind, "error": absence.what, "seconds": RETRY_SECONDS}
        log.warning("an optional kind cannot be listed; trying again", extra=extra)
        return True

    async def _absence(self, kind: Resource, served: bool) -> Absence | None:
        """Why a kind is not there, or None, and then it is listed. Raises Unreached, and Expired."""
        if not served:
            return not_served(kind)
        try:
            await fill(self._cluster, self._informer, self._namespaces, (kind,))
        except ServerRefused as error:
            match error.status:
                case 403:
                    return refused(kind, str(error))
                case 404:
                    return not_served(kind)
                case _:
                    return not_listed(kind, str(error))
        except (Unreached, Expired):
            raise
        except ApiError as error:
            return not_listed(kind, str(error))
        return None


def _reason(absence: Absence | None) -> Reason | None:
    return absence.reason if absence is not None else None
