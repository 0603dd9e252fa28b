"""Writes the Events of services: the same one once in ten minutes, and a few at most for one service."""

from __future__ import annotations

import logging

from graphpod_operator.cache.service import Service
from graphpod_operator.conditions.reason_row import Notice
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.events.event import Event, body, warning
from graphpod_operator.kube.clock import Clock
from graphpod_operator.kube.cluster import ApiError, Cluster, Terminating

log = logging.getLogger(__name__)

QUIET_SECONDS = 600.0
"""The same event of the same object is not repeated within this time."""
BURST, REFILL_SECONDS = 25, 300.0
"""Events of one object at once, and seconds until it may have one more: client-go's limits for any one source."""
FOR_WARNINGS = 10
"""So many of them are left to warnings: who edits a service all the time still hears what goes wrong."""


class Recent:
    """The events of the last minutes. Times are seconds of any clock that only goes forward."""

    def __init__(self) -> None:
        self._sent: dict[tuple[str, int, str], float] = {}
        self._full: dict[str, float] = {}
        """By uid, when its budget will be whole again: all of it, unless that is in the future."""

    def is_new(self, found: Service, event: Event, now: float) -> bool:
        """Whether the event is to be sent; if so, it counts as sent at `now`.

        The same reason under the same generation is the same event, whichever pod it names. A service that spent its
        budget has its status alone.
        """
        self._sent = {mark: at for mark, at in self._sent.items() if now - at < QUIET_SECONDS}
        self._full = {uid: full for uid, full in self._full.items() if full > now}
        mark, full = (found.uid, found.generation, event.reason), max(now, self._full.get(found.uid, now))
        most = BURST if event.notice is Notice.Warning else BURST - FOR_WARNINGS
        if mark in self._sent or full + REFILL_SECONDS - now > most * REFILL_SECONDS:
            return False
        self._sent[mark] = now
        self._full[found.uid] = full + REFILL_SECONDS
        return True


class EventRecorder:
    """Writes events. An event is a courtesy: what goes wrong with it holds up nothing."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._recent = Recent()

    async def tell(self, found: Service, event: Event) -> None:
        """Write an event, unless the same was written lately."""
        if self._recent.is_new(found, event, self._clock.monotonic()):
            await self._send(found, event)

    async def warn(self, found: Service, reason: Reason, what: str, *, once: bool = False) -> None:
        """Write a warning that no condition reports, unless the same was written lately; one that comes up `once` is
        written whatever was.
        """
        event = warning(reason, what, found.key)
        await (self._send(found, event) if once else self.tell(found, event))

    async def _send(self, found: Service, event: Event) -> None:
        try:
            await self._cluster.event(body(found, event, self._clock.timestamp()))
        except Terminating:
            return
        except ApiError as error:
            # an event is a courtesy: the status, already written, says the same
            log.warning("event not written", extra={"reason": event.reason, "error": error})
