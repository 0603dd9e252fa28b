"""From a configuration to a Ready engine.

The order is a chain of needs. Weights first; then static buffers, because graphs freeze their addresses; then
prefill graphs, captured for real against a one-page scratch cache (their breaks fetch the cache when they run, so a
later cache serves them too); then the decode ladder, captured only to learn what it costs, and dropped: a full
decode graph freezes the cache's address, so it cannot be kept before the cache exists. What is then free, less the
measured peak of an eager pass, is the KV cache. Decode is captured again at its final address, every graph is
checked, and only then is the engine Ready.

A failure that the process survives (GraphError) makes the phase one policy weaker and tries again, or ends the start
when `onCaptureFailure` is Fail. Out of memory first shortens the ladder, once.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from graphpod_policy import (
    CompileMode,
    EngineConfig,
    ExitCode,
    Facts,
    OnCaptureFailure,
    Phase,
    Plan,
    Policy,
    not_built,
    refine,
    shorten,
    weaken,
)
from graphpod_runtime.attention.base import Backend as AttentionBackend
from graphpod_runtime.attention.choice import attention_for
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.cache.pages import SCRATCH_PAGE
from graphpod_runtime.engine import kv_room
from graphpod_runtime.engine.capture import Capturer, PhaseGraphs
from graphpod_runtime.engine.counters import Counters
from graphpod_runtime.engine.device import place_of
from graphpod_runtime.engine.failure import StartFailure
from graphpod_runtime.engine.inputs import Inputs, dummy_inputs
from graphpod_runtime.engine.passes import DecodePass, Pass, PrefillPass
from graphpod_runtime.engine.switches import FaultKind, Switches
from graphpod_runtime.graphs.addresses import Addresses
from graphpod_runtime.graphs.breakable import BreakArena
from graphpod_runtime.graphs.dispatch import Ladder
from graphpod_runtime.graphs.errors import CaptureOutOfMemory, GraphError, SelfCheckFailed
from graphpod_runtime.graphs.report import PhaseReport, Report, SelfCheck, Stage, State
from graphpod_runtime.graphs.selfcheck import Checker
from graphpod_runtime.models.base import Model, ModelInvalid, dtype_of
from graphpod_runtime.models.loader import load_model

SCRATCH_VALUE = 100.0
"""What the scratch page holds: finite, because attention over NaN is NaN even where it is masked, and large, so
that a real row that reads it is wrong beyond doubt."""


LoadModel = Callable[[Path, torch.dtype, int, torch.device], Model]
"""(folder, dtype, max_model_len, device) -> the model; raises ModelInvalid."""


@dataclass(slots=True)
class Started:
    """A Ready engine's parts."""

    model: Model
    device: torch.device
    attention: AttentionBackend
    capturer: Capturer
    passes: dict[Phase, Pass]
    graphs: dict[Phase, PhaseGraphs]
    ladders: dict[Phase, Ladder]


class Starter:
    """One start. It reports after every stage and every captured size."""

    def __init__(
        self,
        config: EngineConfig,
        report: Callable[[Report], None],
        counters: Counters,
        started_at: float | None,
        load: LoadModel = load_model,
    ) -> None:
        self.config = config
        self.counters = counters
        self._started_at = started_at
        self._send = report
        self._read_model = load
        # The engine's own resolution starts from the operator's plan as an explicit request.
        self.plan: Plan = config.resolved()
        self._shortened: set[Phase] = set()
        self._graphs: dict[Phase, PhaseGraphs] = {}
        self._driver_bytes = dict.fromkeys(Phase, 0)
        """The most that a phase's graphs took. The driver keeps the memory of dropped graphs for the next ones, so a
        second capture is not seen to take any."""
        self.report = Report(
            backend=self.plan.backend,
            phases={
                phase: PhaseReport(
                    requested=config.phase(phase).requested,
                    planned=config.phase(phase).planned,
                    effective=self.plan.phases[phase].planned,
                    planned_sizes=len(config.phase(phase).sizes),
                )
                for phase in Phase
            },
            decisions=self.plan.decisions,
            page_size=config.page_size,
        )

    def run(self) -> Started:
        """A Ready engine, or StartFailure after a report that says Failed."""
        try:
            with torch.no_grad():
                return self._run()
        except StartFailure as failure:
            self.report.state = State.Failed
            self.report.failure = (failure.reason, failure.message)
            self._tell()
            raise

    def _run(self) -> Started:
        if self._started_at is not None:
            self.report.stages[Stage.Import] = time.time() - self._started_at
        self._tell()
        missing = not_built(self.config.feature_set(), self.config.planned_request())
        if missing:
            raise StartFailure(ExitCode.FeatureNotBuilt, "; ".join(entry.message for entry in missing))
        self._switches = Switches.read()
        if self.config.threads is not None:
            torch.set_num_threads(self.config.threads)
        with self._stage(Stage.Load):
            self._prepare()
            self._refine()
        if self.config.graph.compile is not CompileMode.Nothing:
            with self._stage(Stage.Compile):
                self._compile()
        prefill, decode = Phase.Prefill, Phase.Decode
        self.report.state = State.Capturing
        with self._stage(Stage.PrefillCapture):
            self._capture(prefill)
        with self._stage(Stage.DecodeMeasure):
            self._capture(decode)
            decode_bytes = self._drop(decode)
        with self._stage(Stage.KvSizing):
            self._allocate_cache(decode_bytes)
        with self._stage(Stage.DecodeCapture):
            self._capture(decode)
        self.report.state = State.SelfChecking
        with self._stage(Stage.SelfCheck):
            for phase in Phase:
                self._check(phase)
        self._fill_scratch()
        self._capturer.closed = True
        self.report.state = State.Ready
        self._tell()
        return Started(
            self._model,
            self._device,
            self._attention,
            self._capturer,
            self._passes,
            self._graphs,
            self._ladders(),
        )

    def _prepare(self) -> None:
        """Weights, attention over a scratch cache, static buffers: all that captures need."""
        config, dtype = self.config, dtype_of(self.config.dtype)
        self._place = place_of(config.features.device)
        self._device = self._place.device
        self._model = self._load(dtype)
        shape = self._model.shape
        self._addresses = Addresses()
        self._addresses.register_module(self._model.module())
        self._attention = attention_for(shape, dtype, self._device)
        self._bind(KvCache.allocate(shape, 1, config.page_size, dtype, self._device))
        rows = {
            Phase.Prefill: max(config.prefill_chunk, *config.graph.prefill.sizes[-1:], 1),
            Phase.Decode: max(config.max_batch, *config.graph.decode.sizes[-1:], 1),
        }
        self._passes: dict[Phase, Pass] = {
            Phase.Prefill: PrefillPass(self._model, rows[Phase.Prefill], dtype, self._device),
            Phase.Decode: DecodePass(self._model, rows[Phase.Decode], dtype, self._device),
        }
        breaks = BreakArena(shape, max(rows.values()), dtype, self._device)
        for phase, passing in self._passes.items():
            for name, tensor in passing.buffers:
                self._addresses.register(f"{phase}.{name}", tensor)
        for name, tensor in breaks.tensors().items():
            self._addresses.register(name, tensor)
        for name, tensor in self._attention.reserve(rows[Phase.Decode], kv_room.pages_of_one(config)):
            self._addresses.register(f"attention.{name}", tensor)
        self._capturer = Capturer(
            model=config.model.name,
            backend=self.plan.backend,
            attention=self._attention,
            breaks=breaks,
            page_size=config.page_size,
            counters=self.counters,
            switches=self._switches,
            new_pool=lambda: self._place.pool(self._addresses),
        )

    def _load(self, dtype: torch.dtype) -> Model:
        try:
            model = self._read_model(Path(self.config.model.path), dtype, self.config.max_model_len, self._device)
        except ModelInvalid as error:
            raise StartFailure(ExitCode.ModelInvalid, str(error)) from error
        if self.config.max_model_len > model.shape.max_position:
            raise StartFailure(
                ExitCode.ConfigInvalid,
                f"maxModelLen {self.config.max_model_len} is more than the {model.shape.max_position} positions of "
                f"{self.config.model.name}; lower maxModelLen",
            )
        return model

    def _refine(self) -> None:
        """Weakens the plan by what the loaded model shows: one row through the body counts its attention layers."""
        layers: set[int] = set()

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            layers.add(layer)
            return q.flatten(1)

        inputs = dummy_inputs(Phase.Prefill, 1, self.config.page_size, self._device)
        self._passes[Phase.Prefill].eager(inputs, attend, 1)
        self.plan = refine(self.plan, Facts(len(layers), self._model.shape.layers))
        self.report.decisions = self.plan.decisions
        if (refused := self.plan.refused) is not None:
            raise StartFailure(
                ExitCode.PolicyRefused,
                f"{refused.phase}: rule {refused.rule} stands against {refused.policy}: {refused.because}; "
                "set graph.onUnsupported to Degrade to run a weaker policy",
            )
        for phase, planned in self.plan.phases.items():
            self.report.phases[phase].effective = planned.planned

    def _compile(self) -> None:
        """Compiles the halves: for one row, which torch makes a case of its own, and for any number."""
        self._model.compile_halves()
        for rows in (1, 2):
            inputs = dummy_inputs(Phase.Prefill, rows, self.config.page_size, self._device)
            self._passes[Phase.Prefill].eager(inputs, _no_attention, rows)

    def _bind(self, cache: KvCache) -> None:
        """`cache` for attention, with its scratch page filled, known to captures."""
        self._attention.bind(cache)
        self._fill_scratch()
        self._addresses.register("kv.keys", cache.keys)
        self._addresses.register("kv.values", cache.values)

    def _fill_scratch(self) -> None:
        self._attention.cache.fill(torch.tensor([SCRATCH_PAGE], device=self._device), SCRATCH_VALUE)

    # capture

    def _capture(self, phase: Phase) -> None:
        """Captures the ladder of `phase` by its planned policy, or a weaker one, or none."""
        report = self.report.phases[phase]
        while (planned := self.plan.phases[phase]).planned is not Policy.Disabled:
            began = time.perf_counter()

            def progress(done: int) -> None:
                report.captured = done
                self._tell()

            report.captured = report.failed = 0
            try:
                graphs = self._capturer.capture(self._passes[phase], planned.planned, planned.sizes, progress)
            except GraphError as error:
                self._fill_scratch()
                self._lose(phase)
                self._degrade(phase, error)
                continue
            # A break at capture wrote what a capture has: nothing valid.
            self._fill_scratch()
            self._graphs[phase] = graphs
            report.failed = report.planned_sizes - report.captured
            report.segments = graphs.segments
            report.pool_bytes = graphs.pool.pool_bytes()
            self._driver_bytes[phase] = max(self._driver_bytes[phase], graphs.pool.driver_bytes())
            report.driver_bytes = self._driver_bytes[phase]
            report.capture_seconds = time.perf_counter() - began
            return

    def _degrade(self, phase: Phase, error: GraphError) -> None:
        """The plan after `error`: a shorter ladder once if memory ran out, else a weaker policy.

        StartFailure when `onCaptureFailure` is Fail.
        """
        sizes = self.plan.phases[phase].sizes
        if isinstance(error, CaptureOutOfMemory) and phase not in self._shortened and len(sizes) > 1:
            self._shortened.add(phase)
            self.plan = shorten(self.plan, phase, sizes[: len(sizes) // 2], str(error))
        elif self.config.graph.on_capture_failure is OnCaptureFailure.Fail:
            raise StartFailure(
                error.code, f"{error}; set graph.onCaptureFailure to Degrade to run a weaker policy"
            ) from error
        else:
            self.plan = weaken(self.plan, phase, error.rule, str(error))
        self.report.decisions = self.plan.decisions
        self.report.phases[phase].effective = self.plan.phases[phase].planned
        self._tell()

    def _drop(self, phase: Phase) -> int:
        """Drops the graphs of `phase`; the bytes they took."""
        graphs = self._graphs.get(phase)
        if graphs is None:
            return 0
        taken = graphs.pool.pool_bytes() + graphs.pool.driver_bytes()
        self._lose(phase)
        self.report.phases[phase].failed = 0
        return taken

    def _lose(self, phase: Phase) -> None:
        self._graphs.pop(phase, None)
        report = self.report.phases[phase]
        report.captured = report.segments = report.pool_bytes = report.driver_bytes = 0
        report.capture_seconds = 0.0
        report.failed = report.planned_sizes

    def _allocate_cache(self, decode_bytes: int) -> None:
        config, model = self.config, self._model
        inputs = dummy_inputs(Phase.Prefill, config.prefill_chunk, config.page_size, self._device)
        self._attention.plan(inputs.metadata)

        def prefill() -> Tensor:
            (hidden,) = self._passes[Phase.Prefill].eager(inputs, self._attention.run, inputs.count)
            return model.head(hidden[-config.max_batch :])

        pages = kv_room.pages(config, model.shape, self._place, prefill, decode_bytes)
        self.report.kv_pages = pages
        dtype = dtype_of(config.dtype)
        self._bind(KvCache.allocate(model.shape, pages + 1, config.page_size, dtype, self._device))

    # truth

    def _check(self, phase: Phase) -> None:
        """Self-checks every graph of `phase`; one that fails makes the phase weaker, captured again, checked again."""
        report = self.report.phases[phase]
        while phase in self._graphs:
            labels = {
                "phase": phase.value,
                "policy": self.plan.phases[phase].planned.value,
                "backend": self.plan.backend.value,
            }
            checker = Checker(
                phase=phase,
                subject=_Faulty(self._graphs[phase], phase, self._switches),
                cache=self._attention.cache,
                vocab=self._model.shape.vocab,
                max_model_len=self.config.max_model_len,
            )
            try:
                for _ in checker.sizes():
                    self.counters.add("graphpod_graph_selfchecks_total", result="passed", **labels)
                    self._tell()
            except SelfCheckFailed as error:
                self.counters.add("graphpod_graph_selfchecks_total", result="failed", **labels)
                report.self_check = SelfCheck.Failed
                # The wrong graph may have written anything anywhere, NaN too, which masked slots hand on.
                self._attention.cache.clear()
                self._lose(phase)
                self._degrade(phase, error)
                self._capture(phase)
            else:
                report.self_check = SelfCheck.Passed
                return

    # telling

    def _ladders(self) -> dict[Phase, Ladder]:
        return {
            phase: Ladder(
                phase=phase,
                policy=self.plan.phases[phase].planned,
                planned=self.config.phase(phase).sizes,
                captured=self._graphs[phase].sizes if phase in self._graphs else (),
                ready=True,
            )
            for phase in Phase
        }

    @contextmanager
    def _stage(self, stage: Stage) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.report.stages[stage] = time.perf_counter() - began
        self._tell()

    def _tell(self) -> None:
        self._send(self.report)


def _no_attention(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """An Attend that attends to nothing; its result is laid out as attention's."""
    return q.new_zeros(q.shape[0], q.shape[1] * q.shape[2])


@dataclass(frozen=True, slots=True)
class _Faulty:
    """The self-check's subject: the graphs themselves, with one replay corrupted when a fault asks for it."""

    graphs: PhaseGraphs
    phase: Phase
    switches: Switches

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.graphs.sizes

    def replay(self, inputs: Inputs, size: int) -> tuple[Tensor, ...]:
        results = self.graphs.replay(inputs, size)
        if self.switches.fires(FaultKind.SelfCheck, self.phase, size):
            results[0][-1].neg_()
        return results

    def uncaptured(self, inputs: Inputs, size: int) -> tuple[Tensor, ...]:
        return self.graphs.uncaptured(inputs, size)

    def eager(self, inputs: Inputs, size: int) -> tuple[Tensor, ...]:
        return self.graphs.eager(inputs, size)

    def poison_results(self, size: int) -> None:
        self.graphs.poison_results(size)
