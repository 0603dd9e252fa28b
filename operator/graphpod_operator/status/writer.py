"""Writes the status of a service: when it says something new, and with pauses where somebody else writes it, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphpod_operator.api.names import API_VERSION, KIND
from graphpod_operator.api.status import ConditionStatus, Status
from graphpod_operator.apply.drift_backoff import LIE_PAUSE, STATUS_PAUSE, PutBacks
from graphpod_operator.cache.service import Service
from graphpod_operator.cache.service_memory import ServiceMemory
from graphpod_operator.cache.store import Store
from graphpod_operator.conditions.types import ConditionType
from graphpod_operator.events.event import transitions
from graphpod_operator.events.recorder import EventRecorder
from graphpod_operator.kube.clock import Clock
from graphpod_operator.kube.cluster import Cluster, ServerRefused
from graphpod_operator.kube.field_ownership import fingerprint
from graphpod_operator.status import write_throttle
from graphpod_operator.telemetry import service_progress
from graphpod_operator.telemetry.metrics import Meters


@dataclass(frozen=True, slots=True)
class StatusWriter:
    """Applies the status of services."""

    cluster: Cluster
    store: Store
    clock: Clock
    events: EventRecorder
    put_backs: PutBacks
    meters: Meters

    async def write(self, found: Service, new: Status, memory: ServiceMemory) -> float | None:
        """Write the status if it says something new, then tell the transitions.

        Returns the seconds after which to look again: a detail was held back, or somebody changed the service since.
        """
        content = new.model_dump(mode="json", by_alias=True, exclude_none=True)
        wait = write_throttle.wait(memory.status_written, found.status, content, self.clock.monotonic())
        if wait is None or wait > 0:
            return wait
        said, there = fingerprint(content), fingerprint(found.status)
        if memory.status_said == (said, there):
            return None  # what differs is a field that somebody else holds: saying it again would not take it away
        if memory.status_said is not None and memory.status_said[1] != there:
            longest = _longest_pause(found.status, content)
            if (pause := await self.put_backs.pause(found, found.uid, "the status", longest)) > 0:
                return pause
        body = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": found.key.name, "namespace": found.key.namespace, "uid": found.uid},
            "status": content,
        }
        try:
            raw = await self.cluster.apply_status(body)
        except ServerRefused as error:
            if error.status == 404:
                return None  # deleted meanwhile; the watch will say so
            raise
        memory.status_written = self.clock.monotonic()
        memory.status_said = said, fingerprint(raw.get("status") or {})
        service_progress.written(found.status, content, memory, self.meters, memory.status_written)
        self.store.detect_restore(found, written := Service.of(raw))
        self.store.observe(written)
        for event in transitions(found.status, new):
            await self.events.tell(found, event)
        # the answer has whatever somebody changed meanwhile; the watch delivers it later, as already known
        return None if written.asks_as(found) else 0.0


def _longest_pause(there: Mapping[str, Any], true: Mapping[str, Any]) -> float:
    """How long somebody else's status may stand at most."""
    said, serves = (
        {row["type"] for row in status.get("conditions") or () if row["status"] == ConditionStatus.true}
        for status in (there, true)
    )
    lies = (said - serves).intersection((ConditionType.Ready, ConditionType.Available))
    return LIE_PAUSE if lies else STATUS_PAUSE
