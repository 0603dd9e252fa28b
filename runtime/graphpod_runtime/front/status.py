"""What the front knows about itself: one object that the probes, the middleware and the drain read and write."""

import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from graphpod_policy import EngineConfig, Phase, limits
from graphpod_runtime.wire.messages import Residence
from graphpod_runtime.wire.report import PhaseReport, Report, State


class Change(StrEnum):
    """What somebody asks of the weights."""

    Sleep = "sleep"
    Wake = "wake"
    Reload = "reload"


@dataclass(slots=True)
class Status:
    """The front's state. `report` is the body of /warmup less the pod's identity, as the engine reported it last."""

    config: EngineConfig
    config_hash: str
    pod_uid: str
    report: dict[str, Any]
    app_loaded: bool = False
    engine_alive: bool = False
    started: bool = False
    """Warm-up has ended once; never cleared."""
    draining: bool = False
    """SIGTERM has come: not ready, but still answering."""
    refusing: bool = False
    """The time to accept requests during a drain is over."""
    began: float = field(default_factory=time.monotonic)
    scraped_at: float | None = None
    """When a Prometheus read /metrics last, on the clock of `began`: time.monotonic."""
    started_at: float | None = None
    """When warm-up had ended, as Unix time; None before."""
    residence: Residence = field(default_factory=Residence)
    """Where the weights are, as the engine said last."""
    change: Change | None = None
    """What was asked for and keeps requests away: until Wake, or until new weights are in their places."""

    @classmethod
    def of(cls, config: EngineConfig, config_hash: str, pod_uid: str) -> "Status":
        """The status at process start; the hash is that of the configuration file's bytes."""
        return cls(config, config_hash, pod_uid, first_report(config).as_dict())

    def update(self, report: dict[str, Any]) -> None:
        """The engine has reported how its start goes."""
        self.report = report
        self._latch()

    def loaded(self) -> None:
        """The HTTP application can answer."""
        self.app_loaded = True
        self._latch()

    @property
    def state(self) -> State:
        """Where the start is."""
        return State(self.report["state"])

    @property
    def ready(self) -> bool:
        """Whether a request would be served now. One that sleeps for want of requests serves the next one."""
        return self.started and self.engine_alive and not self.draining and self.change is None

    @property
    def engine_state(self) -> str:
        """Where the start is, or that the engine served and has died."""
        return "the engine has died" if self.started and not self.engine_alive else f"warm-up: {self.state}"

    @property
    def away(self) -> str | None:
        """The `sleep_state` that keeps requests away; None: they are served, and wait while weights come back."""
        return None if self.change in (None, Change.Wake) else self.sleep_state

    @property
    def sleep_state(self) -> str:
        """Where the weights are or go, in a word."""
        if self.change is None:
            return "Asleep" if self.residence.asleep else "Awake"
        if self.change is Change.Sleep and self.residence.asleep:
            return "Asleep"
        return {Change.Sleep: "FallingAsleep", Change.Wake: "Waking", Change.Reload: "Reloading"}[self.change]

    def sleep(self) -> dict[str, Any]:
        """What POST /sleep, /wake and /reload answer, and a part of /warmup."""
        said = self.residence
        return {
            "state": self.sleep_state,
            "idle": said.idle,
            "source": said.source or None,
            "freedBytes": said.freed_bytes,
            "sleepSeconds": round(said.sleep_seconds, 3),
            "wakeSeconds": round(said.wake_seconds, 3),
            "modelRevision": said.revision,
            "refused": said.refused or None,
            "problem": said.problem or None,
        }

    @property
    def context_tokens(self) -> int:
        """Most tokens of one request: what the engine serves, or the whole KV cache when that is smaller. Before the
        engine knows, the most that the configuration allows.
        """
        served, kv_tokens = self.report["limits"], self.report["kv"]["tokens"]
        most: int = served["maxModelLen"] if served else limits.context(self.config.feature_set())
        return min(most, kv_tokens) if kv_tokens else most

    @property
    def batch(self) -> int:
        """Most requests that run together, known as `context_tokens` is."""
        served = self.report["limits"]
        most: int = served["maxBatch"] if served else limits.batch(self.config.feature_set())
        return most

    @property
    def open_tokens(self) -> int:
        """Most tokens of open prompts: the KV cache as often as there may be open requests for each that runs."""
        tokens = self.report["kv"]["tokens"] or self.batch * self.context_tokens
        return int(tokens * (self.batch + self.config.serving.max_queue) // self.batch)

    @property
    def vocabulary(self) -> int:
        """Token ids that the model can read are below this; a tokenizer may have more or fewer, and gaps. 0 until the
        engine has loaded the model."""
        return int(self.report["vocabulary"])

    def scraped(self) -> None:
        """A Prometheus reads /metrics."""
        self.scraped_at = time.monotonic()

    def warmup(self) -> dict[str, Any]:
        """The body of GET /warmup."""
        graph = {
            phase: {name: value for name, value in said.items() if name != "costs"}  # one a size: for metrics only
            for phase, said in self.report["graph"].items()
        }
        now = time.monotonic()
        scrapes = {
            "listeningSeconds": round(now - self.began, 1),
            "lastSecondsAgo": None if self.scraped_at is None else round(now - self.scraped_at, 1),
        }
        about = {"podUID": self.pod_uid, "configHash": self.config_hash}
        return {**about, **self.report, "graph": graph, "scrapes": scrapes, "sleep": self.sleep()}

    def _latch(self) -> None:
        if not self.started and self.app_loaded and self.state is State.Ready:
            self.started, self.started_at = True, time.time()


def first_report(config: EngineConfig) -> Report:
    """What is true before the engine has said a word: the plan, and nothing captured."""
    plan = config.resolved()
    phases = {
        phase: PhaseReport(
            requested=config.phase(phase).requested,
            planned=config.phase(phase).planned,
            effective=config.phase(phase).planned,
            planned_sizes=len(config.phase(phase).sizes),
        )
        for phase in Phase
    }
    return Report(plan.backend, phases, page_size=config.page_size)
