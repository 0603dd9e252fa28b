"""What a start reports: the body of GET /warmup, less the pod's own identity."""

from collections.abc import Container
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import graphpod_policy
from graphpod_policy import Backend, Decision, Phase, Policy, SpeculativeMethod


class State(StrEnum):
    """Where a start is. Ready and Failed are terminal."""

    Loading = "Loading"
    Capturing = "Capturing"
    SelfChecking = "SelfChecking"
    Ready = "Ready"
    Failed = "Failed"


class StartStage(StrEnum):
    """A timed part of the start, in its order."""

    Import = "Import"
    Load = "Load"
    """Weights."""
    Buffers = "Buffers"
    """Attention's workspaces, static buffers, break slots, and what the resolver makes of the loaded model."""
    Compile = "Compile"
    PrefillCapture = "PrefillCapture"
    DecodeMeasure = "DecodeMeasure"
    KvSizing = "KvSizing"
    DecodeCapture = "DecodeCapture"
    SelfCheck = "SelfCheck"


def captured_after(stages: Container[str]) -> Phase:
    """The phase whose graphs a start captures when it has these stages behind it."""
    return Phase.Decode if StartStage.PrefillCapture in stages else Phase.Prefill


class SelfCheck(StrEnum):
    """How the self-check of a phase's graphs ended."""

    NotRun = "NotRun"
    Passed = "Passed"
    Failed = "Failed"


class CaptureCost(NamedTuple):
    """What the capture of one size took: seconds, and the bytes by which pool and driver memory grew. Sizes share a
    pool, so most of a ladder's bytes are those of its largest size.
    """

    size: int
    seconds: float
    pool_bytes: int
    driver_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Plain values in the API's words."""
        seconds = round(self.seconds, 6)
        return {
            "size": self.size,
            "seconds": seconds,
            "poolBytes": self.pool_bytes,
            "driverBytes": self.driver_bytes,
        }


@dataclass(slots=True)
class PhaseReport:
    """One phase. `planned_sizes`, `captured`, `failed` and `checked` count sizes, `segments` those of a forward pass;
    bytes and seconds are of the graphs alive now: `prepare_seconds` of what all sizes share (a trace, compiled pieces),
    `warm_seconds` of passes before the first capture, `costs` of each size, largest first.
    """

    requested: Policy
    planned: Policy
    effective: Policy
    planned_sizes: int
    captured: int = 0
    failed: int = 0
    checked: int = 0
    segments: int = 0
    pool_bytes: int = 0
    driver_bytes: int = 0
    capture_seconds: float = 0.0
    prepare_seconds: float = 0.0
    warm_seconds: float = 0.0
    costs: tuple[CaptureCost, ...] = ()
    self_check: SelfCheck = SelfCheck.NotRun

    def as_dict(self) -> dict[str, Any]:
        """Plain values in the API's words."""
        return {
            "requested": self.requested.value,
            "planned": self.planned.value,
            "effective": self.effective.value,
            "sizes": {"planned": self.planned_sizes, "captured": self.captured, "failed": self.failed},
            "segments": self.segments,
            "poolBytes": self.pool_bytes,
            "driverBytes": self.driver_bytes,
            "captureSeconds": round(self.capture_seconds, 3),
            "costs": [cost.as_dict() for cost in self.costs],
            "selfCheck": self.self_check.value,
        }


class ServedLimits(NamedTuple):
    """Tokens of the longest sequence and sequences of the largest batch that this pod serves; `auto` names those that
    the pod derived, in the API's words.
    """

    context: int
    batch: int
    auto: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values in the API's words."""
        return {"maxModelLen": self.context, "maxBatch": self.batch, "auto": list(self.auto)}


class ServedDrafts(NamedTuple):
    """How this pod drafts: so many `steps` a request, in passes of up to `batch` requests; `auto`: the pod measured
    that."""

    method: SpeculativeMethod
    steps: int
    batch: int
    auto: bool
    model: str | None = None
    """Name of the draft model's folder; None: the method has none."""
    graphs: int = 0
    """Of its steps: batch sizes that were captured."""
    topk: int = 1
    """Branches that each step follows; 1: drafts are chains."""
    tree_tokens: int = 0
    """Drafts of a tree."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values in the API's words."""
        auto = ["maxBatch"] if self.auto else []
        found = {"method": self.method.value, "steps": self.steps, "maxBatch": self.batch, "auto": auto}
        found |= {} if self.topk == 1 else {"topk": self.topk, "draftTokens": self.tree_tokens}
        return found if self.model is None else found | {"draftModel": self.model, "graphs": self.graphs}


class RankReport(NamedTuple):
    """What one of several ranks took at its start: bytes of its device, and the milliseconds of its captures."""

    rank: int
    weights_bytes: int
    kv_bytes: int
    graph_bytes: int
    capture_ms: int

    def as_dict(self) -> dict[str, Any]:
        """Plain values in the API's words."""
        return {
            "rank": self.rank,
            "weightsBytes": self.weights_bytes,
            "kvBytes": self.kv_bytes,
            "graphBytes": self.graph_bytes,
            "captureSeconds": self.capture_ms / 1000,
        }


class ServedHostCache(NamedTuple):
    """The host tier of the KV cache, once all of it is allocated."""

    bytes: int
    tokens: int


class Attention(NamedTuple):
    """Whose kernels compute attention, and why theirs."""

    kernels: str
    because: str


@dataclass(slots=True)
class Report:
    """The start so far. The start writes it; readers take `as_dict` copies."""

    backend: Backend
    phases: dict[Phase, PhaseReport]
    state: State = State.Loading
    decisions: tuple[Decision, ...] = ()
    stages: dict[StartStage, float] = field(default_factory=dict)
    attention: Attention | None = None
    """Known once the model is."""
    limits: ServedLimits | None = None
    """Known once the KV cache is."""
    drafts: ServedDrafts | None = None
    """Known when Ready; None without speculative decoding."""
    host_cache: ServedHostCache | None = None
    """Known when Ready; None without a host tier."""
    weights_bytes: int = 0
    """Known once the model is."""
    pipeline_layers: tuple[int, ...] = ()
    """Layers of each stage of a pipeline; (): there is none."""
    weights: str | None = None
    """How the matrices of layers are held, for people; known once the model is."""
    compiled: tuple[int, int] = (0, 0)
    """Functions that this start compiled, and that it found compiled on disk."""
    kv_pages: int = 0
    page_size: int = 0
    kv_bytes: int = 0
    """Of all pages, the scratch page included."""
    warnings: tuple[str, ...] = ()
    """What may make answers worse than the model's own, for people."""
    vocabulary: int = 0
    """Rows of the model's embedding; known once the model is."""
    failure: tuple[str, str] | None = None
    """Reason and message."""
    ranks: tuple[RankReport, ...] = ()
    """Of several ranks all, known when Ready."""

    @property
    def terminal(self) -> bool:
        """Nothing will change any more."""
        return self.state in (State.Ready, State.Failed)

    @property
    def doing(self) -> str:
        """The state, and in a capture or a check how far it has come, for people."""
        phase = captured_after(self.stages)
        one = self.phases[phase]
        match self.state:
            case State.Capturing:
                return f"{self.state}, {phase} {one.captured} of {one.planned_sizes} sizes"
            case State.SelfChecking:
                checked = sum(each.checked for each in self.phases.values())
                captured = sum(each.captured for each in self.phases.values())
                return f"{self.state}, {checked} of {captured} sizes"
            case _:
                return self.state.value

    def of_rank(self, rank: int) -> RankReport:
        """This process's own part of it."""
        phases = self.phases.values()
        graphs = sum(phase.pool_bytes + phase.driver_bytes for phase in phases)
        seconds = sum(phase.capture_seconds for phase in phases)
        return RankReport(rank, self.weights_bytes, self.kv_bytes, graphs, int(1000 * seconds))

    def capture_clock(self) -> dict[str, float]:
        """Seconds from weights on the device to the last prefill graph, as parts of that sum. `rest` is what the parts
        leave: attempts that failed, memory readings.
        """
        prefill = self.phases[Phase.Prefill]
        of_capture = {
            "trace": prefill.prepare_seconds,
            "warm-up": prefill.warm_seconds,
            "graphs": sum(cost.seconds for cost in prefill.costs),
        }
        return {
            "buffers": self.stages.get(StartStage.Buffers, 0.0),
            "compile": self.stages.get(StartStage.Compile, 0.0),
            **of_capture,
            "rest": self.stages.get(StartStage.PrefillCapture, 0.0) - sum(of_capture.values()),
        }

    def as_dict(self) -> dict[str, Any]:
        """Plain values, a copy: pages are those that sequences can own."""
        return {
            "engine": graphpod_policy.__version__,
            "backend": self.backend.value,
            "state": self.state.value,
            "terminal": self.terminal,
            "graph": {phase.value: report.as_dict() for phase, report in self.phases.items()},
            "decisions": [decision.as_dict() for decision in self.decisions],
            "stages": [{"name": stage.value, "seconds": round(seconds, 3)} for stage, seconds in self.stages.items()],
            "attention": self.attention and self.attention._asdict(),
            "limits": self.limits and self.limits.as_dict(),
            "speculative": self.drafts and self.drafts.as_dict(),
            "hostCache": self.host_cache and self.host_cache._asdict(),
            "compiled": {"compiler": self.compiled[0], "cache": self.compiled[1]},
            "weightsBytes": self.weights_bytes,
            "weights": self.weights,
            "pipelineLayers": list(self.pipeline_layers),
            "kv": {
                "pages": self.kv_pages,
                "pageSize": self.page_size,
                "tokens": self.kv_pages * self.page_size,
                "bytes": self.kv_bytes,
            },
            "warnings": list(self.warnings),
            "vocabulary": self.vocabulary,
            "ranks": [rank.as_dict() for rank in self.ranks],
            "failure": self.failure and {"reason": self.failure[0], "message": self.failure[1]},
        }
