"""Advice on the ladders of services, for `status.graph.advice`: each hour one read of one pod's `/metrics`.

A sweep every half minute takes the services whose turn it is: the uid's hash spreads them over the hour, so that a
thousand services are one read every 3.6 s. A service takes part while it is Ready. A read takes at most 2 s and 1 MiB.
A pod that does not answer is read again an hour later.

An advice stays until another ladder saves more by a margin, and while too little is counted (a pod has restarted). So a
service costs at most one write of its status an hour, and none while the advice stays. Advice is kept in memory, and of
a predecessor's process in the status that it wrote.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from graphpod_operator.api.names import SHORT_NAME
from graphpod_operator.api.status import ConditionStatus, LadderAdviceStatus
from graphpod_operator.cache.key import Key
from graphpod_operator.cache.pod import Pod
from graphpod_operator.cache.service import Service
from graphpod_operator.cache.store import Store
from graphpod_operator.conditions.types import ConditionType
from graphpod_operator.kube.clock import Clock
from graphpod_operator.observe.ladder_use import NoLadderMetrics, PhaseUse, phase_uses, samples
from graphpod_operator.observe.warmup_poller import Unreachable, answers
from graphpod_operator.telemetry import logs
from graphpod_policy import Phase
from graphpod_policy.ladder.advice import Verdict, advice, is_like, padded, still_good
from graphpod_policy.ladder.ladder import Ladder

log = logging.getLogger(__name__)

PERIOD_SECONDS = 3600
"""Between two reads of a service."""
SWEEP_SECONDS = 30.0
CONCURRENCY = 4
"""Reads that run at a time."""


class MetricsPort(Protocol):
    """The pods' admin ports, as the operator reaches them."""

    async def metrics(self, pod: Pod) -> bytes:
        """The body of `/metrics`. Raises Unreachable."""
        ...


@dataclass(slots=True)
class _Known:
    """What is known of a service of one uid."""

    uid: str
    period: int
    """The hour, counted from the service's own minute, in which it was read last."""
    config_hash: str | None = None
    """Of the pod that was read; None before the first read."""
    advice: LadderAdviceStatus | None = None


@dataclass(slots=True)
class LadderAdvisor:
    """The advice of all services. `changed` is called with a service whose advice is another than before."""

    port: MetricsPort
    store: Store
    clock: Clock
    changed: Callable[[Key], None] = lambda key: None
    _known: dict[Key, _Known] = field(default_factory=dict)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONCURRENCY))

    def standing(self, found: Service, config_hash: str | None) -> LadderAdviceStatus | None:
        """The advice for pods of this configuration, by the last read. Before the first one: as the status has it."""
        known = self._known.get(found.key)
        if known is not None and known.uid == found.uid and known.config_hash is not None:
            return known.advice if known.config_hash == config_hash else None
        graph = found.status.get("graph") or {}
        return _written(graph) if config_hash and graph.get("configHash") == config_hash else None

    async def run(self, leads: Callable[[], bool]) -> None:
        """Sweep for ever, while this operator `leads`."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            if leads():
                await self.sweep()

    async def sweep(self) -> None:
        """Read one pod of each service whose turn it is."""
        services = tuple(self.store.services())
        keys = {found.key for found in services}
        for gone in self._known.keys() - keys:
            del self._known[gone]
        due = [(found, pod) for found in services if (pod := self._due(found)) is not None]
        results = await asyncio.gather(*(self._read(*one) for one in due), return_exceptions=True)
        for (found, _), result in zip(due, results, strict=True):
            if isinstance(result, Exception):  # an advice less: the services go on
                with logs.about(found.key):
                    log.error("no advice on ladders", extra={"error": result}, exc_info=result)

    def _due(self, found: Service) -> Pod | None:
        """The pod to ask, if it is the service's turn. The first turn is within an hour of the first look."""
        period = int(self.clock.monotonic() + zlib.crc32(found.uid.encode())) // PERIOD_SECONDS
        known = self._known.get(found.key)
        if known is None or known.uid != found.uid:
            self._known[found.key] = _Known(found.uid, period)
            return None
        if known.period == period:
            return None
        known.period = period
        if found.deleting or not _is_ready(found):
            return None
        config_hash = (found.status.get("graph") or {}).get("configHash")
        ready = (
            pod for pod in self.store.pods(found.key) if pod.ready and answers(pod) and pod.config_hash == config_hash
        )
        return min(ready, key=lambda pod: pod.name, default=None)

    async def _read(self, found: Service, pod: Pod) -> None:
        try:
            async with self._slots:
                uses = phase_uses(samples(await self.port.metrics(pod)))
        except (Unreachable, NoLadderMetrics) as error:
            with logs.about(found.key):
                log.debug("no advice on ladders", extra={"error": error})
            return
        known = self._known.get(found.key)
        if known is None or known.uid != found.uid:
            return  # deleted meanwhile
        before = self.standing(found, pod.config_hash)
        known.config_hash, known.advice = pod.config_hash, advised(found.key, uses, before)
        if known.advice != before:
            self.changed(found.key)


def advised(key: Key, uses: Mapping[Phase, PhaseUse], before: LadderAdviceStatus | None) -> LadderAdviceStatus | None:
    """The advice for a service whose pod served `uses`; `before` where it still holds."""
    held = {phase: _of(before, phase) for phase in Phase}
    ladders = {phase: _ladder(uses[phase], held[phase]) for phase in Phase}
    if ladders == held:
        return before
    parts = [_part(uses[phase], ladder) for phase, ladder in ladders.items() if ladder is not None]
    if not parts:
        return None
    message = f"{'; '.join(parts)}; details: graphpod advise {SHORT_NAME}/{key.name} -n {key.namespace}"
    return LadderAdviceStatus(message=message, prefill=ladders[Phase.Prefill], decode=ladders[Phase.Decode])


def _ladder(found: PhaseUse, before: Ladder | None) -> Ladder | None:
    """What to advise for a phase, where `before` was advised."""
    use = found.use
    if before is not None and still_good(use, before):
        return before
    said = advice(use)
    if said.verdict is Verdict.TooFewPasses and before is not None and is_like(before, use.ladder):
        return before
    return said.better


def _part(found: PhaseUse, ladder: Ladder) -> str:
    """One phase of the message."""
    use = found.use
    computed, promised = use.rows + use.padding, padded(use, ladder)
    today = f"{use.phase} pads {use.padding / max(1, computed):.0%}"
    return today if promised is None else f"{today}, with the sizes here {promised / max(1, use.rows + promised):.0%}"


def _of(advice: LadderAdviceStatus | None, phase: Phase) -> Ladder | None:
    if advice is None:
        return None
    return advice.prefill if phase is Phase.Prefill else advice.decode


def _written(graph: Mapping[str, Any]) -> LadderAdviceStatus | None:
    """The advice in a status that was read; its types were checked then."""
    raw = graph.get("advice")
    if not raw:
        return None
    prefill, decode = (tuple(sizes) if (sizes := raw.get(phase)) else None for phase in Phase)
    return LadderAdviceStatus(message=raw["message"], prefill=prefill, decode=decode)


def _is_ready(found: Service) -> bool:
    return any(
        row["type"] == ConditionType.Ready and row["status"] == ConditionStatus.true
        for row in found.status.get("conditions") or ()
    )
