"""The report of `/warmup` at a pod's admin port: the engine's own word on its graphs. Values only.

A reading says nothing that no engine can say: a policy that its phase cannot run, a number below 0 or without end. So
the API server takes the status that is made of it, whatever a pod answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from graphpod_operator.api.base import Boolean, Integer
from graphpod_operator.plan.weights_orders import ASLEEP, AWAKE, STANDING
from graphpod_operator.telemetry.label_values import Missing
from graphpod_policy import Backend, Outcome, Phase, Policy, Stage
from graphpod_policy.resolution.resolve import candidates

STRENGTH: dict[Phase, tuple[Policy, ...]] = {phase: candidates(phase, Policy.Full) for phase in Phase}
"""The policies that a phase can run, strongest first, as the resolver searches."""


class State(StrEnum):
    """Where the engine's start has got to."""

    Loading = "Loading"
    Capturing = "Capturing"
    SelfChecking = "SelfChecking"
    Ready = "Ready"
    Failed = "Failed"


class EngineValue(BaseModel):
    """Values of the engine; a newer one may say more than we read."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


Count = Annotated[Integer, Field(ge=0, le=1_000_000)]
Seconds = Annotated[float, Field(ge=0, le=10_000_000, strict=True, allow_inf_nan=False)]
Age = Annotated[float, Field(ge=0, le=1e10, strict=True, allow_inf_nan=False)]
Word = Annotated[str, Field(max_length=253)]
Amount = Annotated[Integer, Field(ge=0, le=1 << 40)]


class SizesRead(EngineValue):
    """Sizes planned, captured and failed."""

    planned: Count = 0
    captured: Count = 0
    failed: Count = 0


class PhaseRead(EngineValue):
    """One phase as the engine runs it. `capture_seconds` are seconds."""

    effective: Policy
    sizes: SizesRead = SizesRead()
    capture_seconds: Seconds = 0.0
    self_check: Word = "NotRun"


class DecisionRead(EngineValue):
    """One decision of the engine's resolver."""

    rule: Word
    phase: Phase
    stage: Stage
    outcome: Outcome
    because: str = ""
    hint: str = ""


class LimitsRead(EngineValue):
    """What the pod serves: tokens of one request, requests of one pass. `auto` names the fields it derived."""

    max_model_len: Amount
    max_batch: Amount
    auto: Annotated[tuple[Word, ...], Field(max_length=8)] = ()


class SpeculativeRead(EngineValue):
    """How the pod drafts: so many `steps` a request, in passes of up to `max_batch` requests. `auto` names the fields
    it derived."""

    method: Word
    draft_model: Word | None = None
    steps: Amount
    max_batch: Amount
    auto: Annotated[tuple[Word, ...], Field(max_length=8)] = ()


class HostCacheRead(EngineValue):
    """The host tier of the KV cache, in tokens."""

    tokens: Amount = 0


class KvRead(EngineValue):
    """The KV cache, in tokens that sequences can own."""

    tokens: Amount = 0


class FailureRead(EngineValue):
    """Why the start failed."""

    reason: Word
    message: str = ""


FRESH_SECONDS = 600.0
"""A pod counts as scraped so long after the last scrape: twice the time for which Prometheus believes a sample."""


class ScrapesRead(EngineValue):
    """Whether a Prometheus reads the pod's /metrics. Ages in seconds, at the moment of the reading."""

    listening_seconds: Age
    last_seconds_ago: Age | None = None

    @property
    def recent(self) -> bool:
        """Whether the last scrape was a short while ago."""
        return self.last_seconds_ago is not None and self.last_seconds_ago <= FRESH_SECONDS


class SleepRead(EngineValue):
    """Where the pod's weights are, and what became of the last command about them."""

    state: Word
    idle: Boolean = False
    freed_bytes: Amount = 0
    model_revision: Word = ""
    refused: Word | None = None
    problem: str | None = None


class Reading(EngineValue):
    """One answer of `/warmup`."""

    pod_uid: Word = Field(alias="podUID")
    config_hash: Word
    backend: Backend
    state: State
    terminal: Boolean
    graph: Mapping[Phase, PhaseRead] = {}
    decisions: tuple[DecisionRead, ...] = Field((), max_length=256)
    limits: LimitsRead | None = None
    kv: KvRead = KvRead()
    speculative: SpeculativeRead | None = None
    host_cache: HostCacheRead | None = None
    failure: FailureRead | None = None
    scrapes: ScrapesRead | None = None
    """None: the engine is too old to report it."""
    sleep: SleepRead | None = None
    """None as above."""

    @property
    def weights_stay(self) -> bool:
        """Whether its weights are where they are to be, as far as the pod knows."""
        return self.sleep is None or self.sleep.state in STANDING

    @property
    def serves(self) -> bool:
        """Whether a request gets an answer: one that sleeps for want of requests wakes by it."""
        return self.sleep is None or self.sleep.state == AWAKE or (self.sleep.state == ASLEEP and self.sleep.idle)

    @model_validator(mode="after")
    def _can_be(self) -> Self:
        for phase, read in self.graph.items():
            if read.effective not in STRENGTH[phase]:
                raise ValueError(f"graph.{phase}.effective is {read.effective}, which {phase} cannot run")
        if self.state is State.Ready and self.graph.keys() != set(Phase):
            raise ValueError("graph must have both phases once the state is Ready")
        return self


MISSES_BORNE = 3
BORNE_SECONDS = 6.0
"""A pod may miss this many reads, and for so long, before its admin port counts as unreachable: its engine may begin to
listen or be about to end, which the kubelet reports later. Status agrees within 10 s (contract 13).
"""


@dataclass(frozen=True, slots=True)
class NoReading:
    """A running pod that gave no reading that counts."""

    cause: Missing
    message: str
    misses: int = 1
    """How many reads of this container in a row gave none."""
    seconds: float = BORNE_SECONDS
    """Since the first of them ended."""

    @property
    def is_borne(self) -> bool:
        """Whether it may be a mere miss: nothing is said of it yet, and the pod is asked again soon."""
        return self.misses < MISSES_BORNE or self.seconds < BORNE_SECONDS


Answer = Reading | NoReading
