"""Writes the Events of services: the same one once in ten minutes, and a few at most for one service."""

from __future__ import annotations

import logging
from typing import Any

from graphpod_operator.cache.service import Service
from graphpod_operator.kube.clock import Clock
from graphpod_operator.kube.port import ApiError, Cluster, Terminating
from graphpod_operator.status import events

log = logging.getLogger("graphpod_operator.reconcile")


class EventRecorder:
    """Writes events. An event is a courtesy: what goes wrong with it holds up nothing."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._recent = events.Recent()

    async def tell(self, found: Service, event: events.Event) -> None:
        """Write an event, unless the same was written lately."""
        if self._recent.is_new(found, event, self._clock.monotonic()):
            await self.send(found, event)

    async def send(self, found: Service, event: events.Event) -> None:
        """Write an event."""
        body: dict[str, Any] = events.body(found, event, self._clock.timestamp())
        try:
            await self._cluster.event(body)
        except Terminating:
            return
        except ApiError as error:
            # an event is a courtesy: the status, already written, says the same
            log.warning("event not written", extra={"reason": event.reason, "error": error})
