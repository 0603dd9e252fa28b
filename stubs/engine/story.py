"""One run of a stub engine, known beforehand: its scenes, and what its admin port reports at any time of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ATTENTION = {"kernels": "torch", "because": "a stub attends to nothing"}
POOL_BYTES = 1 << 20  # of one size
PAGE_BYTES = 1 << 18
WEIGHTS_BYTES = 256 << 20
NAMES = {10: "ConfigInvalid", 11: "ModelInvalid", 12: "CaptureFailed", 13: "CaptureOutOfMemory"}
NAMES |= {14: "SelfCheckFailed", 15: "EngineDied", 16: "Stuck", 28: "SettingInvalid", 31: "RankDied", 32: "RankStuck"}
NAMES[137] = "OOMKilled"

AWAKE = {
    "state": "Awake",
    "idle": False,
    "source": None,
    "freedBytes": 0,
    "sleepSeconds": 0.0,
    "wakeSeconds": 0.0,
    "modelRevision": "",
    "refused": None,
    "problem": None,
}
"""What an engine says of sleep that has never slept."""


@dataclass(frozen=True, slots=True)
class PhaseScene:
    """One phase of the report; `captures` are the sizes and the seconds that each took, largest size first."""

    requested: str
    planned: str
    effective: str
    sizes: int
    captures: tuple[tuple[int, float], ...] = ()
    failed: int = 0
    segments: int = 0
    seconds: float = 0.0
    self_check: str = "NotRun"

    def report(self) -> dict[str, Any]:
        return {
            "requested": self.requested,
            "planned": self.planned,
            "effective": self.effective,
            "sizes": {"planned": self.sizes, "captured": len(self.captures), "failed": self.failed},
            "segments": self.segments,
            "poolBytes": len(self.captures) * POOL_BYTES,
            "driverBytes": 0,
            "captureSeconds": round(self.seconds, 3),
            "selfCheck": self.self_check,
        }


@dataclass(frozen=True, slots=True)
class Scene:
    """What is true from `at` seconds after the process start on."""

    at: float
    state: str
    phases: Mapping[str, PhaseScene]
    decisions: tuple[Mapping[str, str], ...]
    stages: tuple[tuple[str, float], ...]
    pages: int
    failure: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class End:
    """How the process ends by itself, and when."""

    at: float
    code: int
    message: str

    @property
    def line(self) -> str:
        """The termination message; none when the kernel did it."""
        return "" if self.code == 137 else f"{NAMES[self.code]}: {self.message}"


@dataclass(frozen=True, slots=True)
class Story:
    """One run of an engine, in seconds after its start. `silent_at` and `ready_at` None: never."""

    scenes: tuple[Scene, ...]
    backend: str
    page_size: int
    ready_at: float | None
    end: End | None
    limits: Mapping[str, Any] = field(default_factory=dict)
    """What it serves, reported once its KV cache is there."""
    drafts: Mapping[str, Any] | None = None
    """How it drafts, reported when Ready; None: not at all."""
    host_cache: Mapping[str, Any] | None = None
    """Its host tier, reported when Ready; None: it has none."""
    silent_at: float | None = None
    mute: bool = False
    """/warmup never answers."""
    lie: str = ""
    answer: str = ""
    flap: float = 0.0

    @classmethod
    def refused(cls, code: int, why: str) -> Story:
        """Of an engine that cannot use its configuration or its environment: it ends at once with `code`."""
        phases = {name: PhaseScene("Auto", "Disabled", "Disabled", 0) for name in ("prefill", "decode")}
        nothing = Scene(0.0, "Loading", phases, (), (), 0)
        return cls((nothing,), "Recorder", 16, None, End(0.0, code, why))

    def scene(self, at: float) -> Scene:
        """What is true then."""
        return next((scene for scene in reversed(self.scenes) if scene.at <= at), self.scenes[0])

    def started(self, at: float) -> bool:
        """What /startupz says then; never taken back."""
        return self.ready_at is not None and at >= self.ready_at

    def ready(self, at: float) -> bool:
        """What /readyz says then."""
        if self.ready_at is None or at < self.ready_at:
            return False
        return not self.flap or int((at - self.ready_at) / self.flap) % 2 == 0

    def silent(self, at: float) -> bool:
        """Whether the admin port has stopped answering."""
        return self.silent_at is not None and at >= self.silent_at

    def report(
        self,
        at: float,
        pod_uid: str,
        config_hash: str,
        scraped_at: float | None = None,
        sleep: Mapping[str, Any] = AWAKE,
    ) -> dict[str, Any]:
        """The body of /warmup then; `scraped_at` is when Prometheus read /metrics last, `sleep` is of the weights."""
        scene = self.scene(at)
        loaded = any(name == "Load" for name, _ in scene.stages)
        return {
            "podUID": "another-pod" if self.lie == "uid" else pod_uid,
            "configHash": "0" * 10 if self.lie == "hash" else config_hash,
            "engine": "stub",
            "backend": self.backend,
            "state": scene.state,
            "terminal": scene.state in ("Ready", "Failed"),
            "graph": {name: phase.report() for name, phase in scene.phases.items()},
            "decisions": [dict(decision) for decision in scene.decisions],
            "attention": ATTENTION if loaded else None,
            "stages": [{"name": name, "seconds": round(seconds, 3)} for name, seconds in scene.stages],
            "limits": dict(self.limits) if scene.pages else None,
            "speculative": self.drafts if scene.state == "Ready" else None,
            "ranks": [],
            "pipelineLayers": [],
            "hostCache": self.host_cache if scene.state == "Ready" else None,
            "kv": {
                "pages": scene.pages,
                "pageSize": self.page_size,
                "tokens": scene.pages * self.page_size,
                "bytes": scene.pages * PAGE_BYTES,
            },
            "weightsBytes": WEIGHTS_BYTES if loaded else 0,
            "weights": "bfloat16" if loaded else None,
            "compiled": {"compiler": 0, "cache": 0},
            "vocabulary": 0,
            "warnings": [],
            "failure": scene.failure and {"reason": scene.failure[0], "message": scene.failure[1]},
            "sleep": dict(sleep),
            "scrapes": {
                "listeningSeconds": round(at, 1),
                "lastSecondsAgo": None if scraped_at is None else round(at - scraped_at, 1),
            },
        }
