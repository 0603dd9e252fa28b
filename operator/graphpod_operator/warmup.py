"""What `/warmup` of a pod's admin port says: the engine's own word on its graphs.

A reading counts only if it names the pod's uid and the configuration hash of the pod's template; anything else is
`NoReading`, with the cause. A terminal reading is kept for its (pod, container) and not asked for again until the
container restarts or a resync asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from graphpod_operator.observe import Pod
from graphpod_policy import Backend, Outcome, Phase, Policy, Stage

CONCURRENCY = 32
"""Reads that run at a time."""


class State(StrEnum):
    """Where the engine's start has got to."""

    Loading = "Loading"
    Capturing = "Capturing"
    SelfChecking = "SelfChecking"
    Ready = "Ready"
    Failed = "Failed"


class Wire(BaseModel):
    """Values of the engine; a newer one may say more than we read."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


class SizesRead(Wire):
    """Sizes planned, captured and failed."""

    planned: int = 0
    captured: int = 0
    failed: int = 0


class PhaseRead(Wire):
    """One phase as the engine runs it. `capture_seconds` are seconds."""

    effective: Policy
    sizes: SizesRead = SizesRead()
    capture_seconds: float = 0.0
    self_check: str = "NotRun"


class DecisionRead(Wire):
    """One decision of the engine's resolver."""

    rule: str
    phase: Phase
    stage: Stage
    outcome: Outcome
    because: str = ""
    hint: str = ""


class FailureRead(Wire):
    """Why the start failed."""

    reason: str
    message: str = ""


class Reading(Wire):
    """One answer of `/warmup`."""

    pod_uid: str = Field(alias="podUID")
    config_hash: str
    backend: Backend
    state: State
    terminal: bool
    graph: Mapping[Phase, PhaseRead] = {}
    decisions: tuple[DecisionRead, ...] = ()
    failure: FailureRead | None = None


class Missing(StrEnum):
    """Why there is no reading of a running pod; the values are the metric's words."""

    Unreachable = "unreachable"
    Mismatch = "mismatch"


@dataclass(frozen=True, slots=True)
class NoReading:
    """A running pod that gave no reading that counts."""

    cause: Missing
    message: str
    misses: int = 1
    """How many reads of this container in a row gave none."""


class Unreachable(Exception):
    """The admin port gave no answer in time, or one that is no warm-up report; the message says which."""


class AdminPort(Protocol):
    """The pods' admin ports, as the operator reaches them."""

    async def warmup(self, pod: Pod) -> bytes:
        """The body of `/warmup`. Raises Unreachable."""
        ...


class Warmups:
    """The readings of all pods; a terminal one is kept, by pod uid, with the container it is about."""

    def __init__(self, port: AdminPort) -> None:
        self._port = port
        self._terminal: dict[str, tuple[str, Reading]] = {}
        self._misses: dict[str, tuple[str, int]] = {}
        self._slots = asyncio.Semaphore(CONCURRENCY)

    async def read(self, pods: Iterable[Pod], *, again: bool = False) -> dict[str, Reading | NoReading]:
        """A reading, or why there is none, for each running pod, by pod uid.

        Terminal readings come from memory, unless `again`: then they are confirmed, and kept if the pod does not
        answer.
        """
        running = [pod for pod in pods if pod.running and pod.ip and not pod.deleting]
        answers = await asyncio.gather(*(self._of(pod, again) for pod in running))
        return {pod.uid: answer for pod, answer in zip(running, answers, strict=True)}

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._terminal.pop(uid, None)
        self._misses.pop(uid, None)

    async def _of(self, pod: Pod, again: bool) -> Reading | NoReading:
        container, known = self._terminal.get(pod.uid, (pod.container, None))
        if container != pod.container:
            known = None
        if known is not None and not again:
            return known
        async with self._slots:
            answer = await self._ask(pod)
        if isinstance(answer, NoReading):
            return known or replace(answer, misses=self._missed(pod))
        self._misses.pop(pod.uid, None)
        if answer.terminal:
            self._terminal[pod.uid] = pod.container, answer
        return answer

    def _missed(self, pod: Pod) -> int:
        container, count = self._misses.get(pod.uid, (pod.container, 0))
        count = count + 1 if container == pod.container else 1
        self._misses[pod.uid] = pod.container, count
        return count

    async def _ask(self, pod: Pod) -> Reading | NoReading:
        try:
            reading = Reading.model_validate_json(await self._port.warmup(pod))
        except Unreachable as error:
            return NoReading(Missing.Unreachable, str(error))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            return NoReading(Missing.Mismatch, f"pod {pod.name} answered no warm-up report: {field}: {first['msg']}")
        if (reading.pod_uid, reading.config_hash) != (pod.uid, pod.config_hash):
            return NoReading(
                Missing.Mismatch,
                f"the admin address of pod {pod.name} answered for pod uid {reading.pod_uid}, "
                f"configuration {reading.config_hash}, not for {pod.uid}, {pod.config_hash}",
            )
        return reading
