"""What the pods of downloads report at their admin ports while they run.

A reconcile does not wait for a pod that is slow to answer: it goes on with the last report, and comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from graphpod_operator.cache.fetch_report import FetchReport
from graphpod_operator.cache.pod import Pod
from graphpod_operator.kube.clock import Clock
from graphpod_operator.observe.warmup_poller import Unreachable, answers

PATIENCE = 0.2
"""Seconds a reconcile waits for the reads that it asked for."""
POLL_SECONDS = 5.0
"""Between two reads of a pod: a status is written as often."""
REMEMBERED = 1024
"""Pods whose last report is known."""


class ProgressPort(Protocol):
    """The pods' admin ports, as the operator reaches them."""

    async def progress(self, pod: Pod) -> bytes:
        """The body of `/progress`. Raises Unreachable."""
        ...


@dataclass(slots=True)
class _Asked:
    read: asyncio.Task[FetchReport | None]
    begun: float
    report: FetchReport | None = None


@dataclass(slots=True)
class DownloadProgress:
    """The last reports of all pods that download, by the pod's uid. Services that share a download share its reads."""

    port: ProgressPort
    clock: Clock
    _pods: dict[str, _Asked] = field(default_factory=dict)

    async def read(self, pods: Iterable[Pod]) -> dict[str, FetchReport]:
        """The last report of each of these pods that runs and has answered."""
        found = {pod.uid: self._asked(pod) for pod in pods if answers(pod)}
        if under_way := [one.read for one in found.values() if not one.read.done()]:
            await asyncio.wait(under_way, timeout=PATIENCE)
        for one in found.values():
            if one.read.done():
                one.report = one.read.result() or one.report
        return {uid: one.report for uid, one in found.items() if one.report is not None}

    def _asked(self, pod: Pod) -> _Asked:
        """The read of a pod: a new one where the last has ended and is old."""
        now, known = self.clock.monotonic(), self._pods.get(pod.uid)
        if known is not None and (not known.read.done() or now - known.begun < POLL_SECONDS):
            return known
        report = known.report if known is not None else None
        while len(self._pods) >= REMEMBERED:
            del self._pods[next(iter(self._pods))]
        self._pods[pod.uid] = _Asked(asyncio.create_task(self._ask(pod)), now, report)
        return self._pods[pod.uid]

    async def _ask(self, pod: Pod) -> FetchReport | None:
        try:
            return FetchReport.read(await self.port.progress(pod))
        except Unreachable:
            return None
