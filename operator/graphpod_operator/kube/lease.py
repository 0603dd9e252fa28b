"""Leadership: of the operators that share a Lease, one writes at a time.

The leader renews its Lease every 2 s, and writes only within 10 s of the beginning of a renewal that succeeded. Another
takes the Lease once it has seen it unchanged for the 15 s that stand in it. Both times are of clocks that only go
forward, each of one process, so that a wrong wall clock moves nothing. A Lease is replaced by its resourceVersion: of
two that take it at the same moment, one fails.

An API server that does not answer ends no process: nothing is written meanwhile, and the operator leads on if it is
the first to renew. That somebody else holds the Lease does end it, because what it knows may be stale.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from graphpod_operator.kube.clock import Clock
from graphpod_operator.kube.cluster import ApiError, Conflict, NotLeading, Raw
from graphpod_operator.kube.resources import Resource

log = logging.getLogger(__name__)

NAME = "graphpod-operator"
DURATION_SECONDS = 15
"""What stands in the Lease: others leave it alone for so long."""
WRITE_SECONDS = 10.0
"""How long a renewal allows writes. What is left of DURATION_SECONDS is for a request that is on its way."""
RETRY_SECONDS = 2.0


class LeaseLost(Exception):
    """Another operator holds the Lease that was ours."""


class Leases(Protocol):
    """The API server's Leases. Both methods answer within 3 s or raise Unavailable; they may raise Refused."""

    async def get(self, namespace: str, name: str) -> Raw | None:
        """The live Lease, or None."""
        ...

    async def put(self, body: Raw) -> Raw:
        """Create a Lease without a resourceVersion; replace the one of exactly this resourceVersion. Raises Conflict
        when somebody else was faster.
        """
        ...


class Leadership:
    """One contender. `identity` is its own alone; `renewed_late` is called when it leads on after it could not
    write."""

    def __init__(
        self, leases: Leases, namespace: str, identity: str, clock: Clock, renewed_late: Callable[[], None]
    ) -> None:
        self.won = asyncio.Event()
        """Set once the Lease was ours, and never reset."""
        self.trouble: str | None = None
        """Why the last try gave no answer, in a sentence; None after one that did."""
        self._leases = leases
        self._namespace = namespace
        self._identity = identity
        self._clock = clock
        self._renewed_late = renewed_late
        self._renewed = float("-inf")
        self._ours: Raw | None = None
        """The Lease as our last write left it; None when it is to be read first."""
        self._theirs: tuple[str, float] = ("", 0.0)
        """resourceVersion of another's Lease, and since when it has not changed."""
        self._theirs_ends = float("-inf")
        """When that Lease binds no more, if it stays unchanged."""

    def holds(self) -> bool:
        """Whether writes are allowed now."""
        return self._clock.monotonic() - self._renewed < WRITE_SECONDS

    def fence(self) -> None:
        """Asked before every write. Raises NotLeading."""
        if not self.holds():
            raise NotLeading(0, f"not sent: the Lease {self._namespace}/{NAME} was not renewed in time")

    async def contend(self) -> None:
        """Take the Lease when it is free, and renew it, until cancelled. Raises LeaseLost."""
        while True:
            await self.attempt()
            await asyncio.sleep(self.pause())

    def pause(self) -> float:
        """Seconds until the next try: that at which another's Lease ends is made then, not up to 2 s later."""
        left = self._theirs_ends - self._clock.monotonic()
        return left if 0 < left < RETRY_SECONDS else RETRY_SECONDS

    async def attempt(self) -> None:
        """Once. `trouble` reports an API server that refuses or is silent. Raises LeaseLost."""
        try:
            await self._attempt()
        except ApiError as error:
            self._ours = None
            if self.trouble is None:
                log.warning("Lease not renewed", extra=self._log_fields(error=error))
            self.trouble = f"the Lease {self._namespace}/{NAME} cannot be kept: {error}"
        else:
            self.trouble = None

    async def release(self) -> None:
        """Leave the Lease to the next one at once. Called when no write is under way any more."""
        if not self.holds():
            return
        self._renewed = float("-inf")
        try:
            found = await self._leases.get(self._namespace, NAME)
            if found is not None and _holder(found) == self._identity:
                await self._leases.put({**found, "spec": {**found["spec"], "holderIdentity": ""}})
                log.info("Lease released", extra=self._log_fields())
        except ApiError as error:
            log.warning("Lease not released; the next operator waits for its end", extra=self._log_fields(error=error))

    async def _attempt(self) -> None:
        began = self._clock.monotonic()
        found = self._ours or await self._leases.get(self._namespace, NAME)
        if found is not None and (holder := _holder(found)) not in ("", self._identity):
            if self.won.is_set():
                raise LeaseLost(f"the Lease {self._namespace}/{NAME} is held by {holder}")
            if self._binds(found):
                return
        try:
            self._ours = await self._leases.put(self._next(found))
        except Conflict:
            remembered, self._ours = self._ours is not None, None
            if remembered:  # somebody changed it since: who leads looks at once whether it still does
                await self._attempt()
            return
        if not self.won.is_set():
            log.info("leading", extra=self._log_fields(holder=self._identity))
        elif not self.holds():
            log.warning("Lease renewed late", extra=self._log_fields(seconds=round(began - self._renewed)))
            self._renewed_late()
        self._renewed = began
        self.won.set()

    def _log_fields(self, **fields: object) -> dict[str, object]:
        return {"object": f"{self._namespace}/{NAME}", **fields}

    def _binds(self, found: Raw) -> bool:
        """Whether another's Lease still has to be left alone, by how long we have seen it unchanged."""
        version, now = found["metadata"]["resourceVersion"], self._clock.monotonic()
        if self._theirs[0] != version:
            self._theirs = version, now
        self._theirs_ends = self._theirs[1] + found["spec"].get("leaseDurationSeconds", DURATION_SECONDS)
        return now < self._theirs_ends

    def _next(self, found: Raw | None) -> Raw:
        """The Lease that makes us its holder, or keeps us so. Its dates are for people."""
        now = self._clock.timestamp().removesuffix("Z") + ".000000Z"  # a MicroTime has to have six digits
        before: dict[str, Any] = dict(found["spec"]) if found is not None else {}
        changed = before.get("holderIdentity") != self._identity
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": DURATION_SECONDS,
            "acquireTime": now if changed else before.get("acquireTime", now),
            "renewTime": now,
            "leaseTransitions": before.get("leaseTransitions", -1) + changed,
        }
        if found is not None:
            return {**found, "spec": spec}
        metadata = {"name": NAME, "namespace": self._namespace}
        return {
            "apiVersion": Resource.Lease.api_version,
            "kind": Resource.Lease.kind,
            "metadata": metadata,
            "spec": spec,
        }


def _holder(found: Raw) -> str:
    return (found.get("spec") or {}).get("holderIdentity") or ""
