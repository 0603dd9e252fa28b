"""Degrade: from a phase's planned policy down to the strongest one that passes its captures and its self-check.

Out of memory first shortens the ladder, once; what cannot be compiled runs uncompiled; every other failure that the
process survives (GraphError) makes the phase one policy weaker. When `onCaptureFailure` is Fail the start ends instead.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from graphpod_policy import EngineConfig, OnCaptureFailure, Phase, Plan, Policy, shorten, uncompiled, weaken
from graphpod_policy.cost.selfcheck import LONG_ROW
from graphpod_runtime.base.errors import CaptureOutOfMemory, CompileFailed, GraphError, SelfCheckFailed
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.base.progress import OnProgress
from graphpod_runtime.compiled.cache import CompileCache, Compiled
from graphpod_runtime.engine.capture.capturer import Capturer
from graphpod_runtime.engine.capture.debug import FaultKind, Switches
from graphpod_runtime.engine.capture.phase_capture import PhaseCapture
from graphpod_runtime.engine.capture.selfcheck import TOGETHER, Checker
from graphpod_runtime.engine.start.device_state import DeviceState
from graphpod_runtime.models.mlp.moved_weights import tipping_of
from graphpod_runtime.wire.counters import Counters
from graphpod_runtime.wire.report import Report, SelfCheck

logger = logging.getLogger("graphpod.engine")


class DegradingCapture:
    """The captures of both phases of one start. `plan` is what is left of the plan; `captured` are those alive now."""

    def __init__(
        self,
        config: EngineConfig,
        plan: Plan,
        device_state: DeviceState,
        capturer: Capturer,
        counters: Counters,
        switches: Switches,
        report: Report,
        tell: Callable[[], None],
    ) -> None:
        """`tell` is called after every captured size, every check and every step down; `report` says what happened."""
        self.plan = plan
        self.captured: dict[Phase, PhaseCapture] = {}
        self._config = config
        self._device_state = device_state
        self._capturer = capturer
        self._counters = counters
        self._switches = switches
        self._report = report
        self._tell = tell
        self._shortened: set[Phase] = set()
        self._wanted = {phase: len(plan.phases[phase].sizes) for phase in Phase}
        """Sizes of each phase before anything failed: a ladder that ends lower on this GPU failed nothing."""
        self._driver_bytes = dict.fromkeys(Phase, 0)
        """The most that a phase's graphs took. The driver keeps the memory of dropped graphs for the next ones, so a
        second capture is not seen to take any."""

    def compile(self, cache: CompileCache) -> None:
        """Takes the halves of a layer from `cache`: one row runs each, and they are the same for any number. When one
        cannot be compiled nothing is: neither they nor pieces."""
        halves = self._device_state.model.compile_halves(cache)
        passing = self._device_state.passes[Phase.Prefill]
        try:
            # Not a whole pass: all ranks vote on each half, and a stage that waits for another's states would not.
            # A stage whose layers are of more forms, as dense ones and some with experts, has more halves.
            with cache.as_many(Compiled.After, halves):
                passing.compute(_no_attention, *passing.arguments(1))
            if self._device_state.device.type == "cuda" and self._config.features.tensor > 1:
                # Two GPUs take compiled layers by kernels of their own, which this compiles: no request is to wait.
                passing.compute(_no_attention, *passing.arguments(1))
        except CompileFailed as error:
            self._device_state.model.compile_halves(None)
            for phase in Phase:
                self._counters.add(
                    "graphpod_graph_capture_failures_total",
                    phase=phase.value,
                    backend=self.plan.backend.value,
                    reason=error.rule,
                )
            self._forgo_compiling(tuple(Phase), error)

    def capture(self, phase: Phase) -> None:
        """Captures the ladder of `phase` by its planned policy, or a weaker one, or none."""
        report = self._report.phases[phase]
        while (planned := self.plan.phases[phase]).planned is not Policy.Disabled:
            began = time.perf_counter()

            def progress(done: int) -> None:
                report.captured = done
                self._tell()

            report.captured = report.failed = 0
            try:
                captured = self._capturer.capture(
                    self._device_state.passes[phase], planned.planned, self.plan.rows(phase), progress
                )
            except GraphError as error:
                self._device_state.fill_scratch()
                self._lose(phase)
                self._step_down(phase, error)
                continue
            # A break at capture wrote what a capture has: nothing valid.
            self._device_state.fill_scratch()
            self.captured[phase] = captured
            report.failed = self._wanted[phase] - report.captured
            report.segments = captured.graphs.segments
            report.pool_bytes = captured.pool.pool_bytes()
            self._driver_bytes[phase] = max(self._driver_bytes[phase], captured.pool.driver_bytes())
            report.driver_bytes = self._driver_bytes[phase]
            report.capture_seconds = time.perf_counter() - began
            report.prepare_seconds, report.warm_seconds = captured.prepare_seconds, captured.warm_seconds
            width = self.plan.features.verify_width if phase is Phase.Decode else 1
            report.costs = tuple(cost._replace(size=cost.size // width) for cost in captured.costs)
            return

    def drop(self, phase: Phase) -> int:
        """Drops the graphs of `phase`; the bytes they took."""
        captured = self.captured.get(phase)
        if captured is None:
            return 0
        taken = captured.pool.pool_bytes() + captured.pool.driver_bytes()
        self._lose(phase)
        self._report.phases[phase].failed = 0
        return taken

    def check(self, phase: Phase) -> None:
        """Self-checks every graph of `phase`; one that fails makes the phase weaker, captured again, checked again."""
        report = self._report.phases[phase]
        while phase in self.captured:
            labels = {
                "phase": phase.value,
                "policy": self.plan.phases[phase].planned.value,
                "backend": self.plan.backend.value,
            }
            cache = self._device_state.attention.cache
            try:
                for checked, _ in enumerate(self._checker(phase).sizes(), 1):
                    report.checked = checked
                    self._counters.add("graphpod_graph_selfchecks_total", result="passed", **labels)
                    self._tell()
            except SelfCheckFailed as error:
                self._counters.add("graphpod_graph_selfchecks_total", result="failed", **labels)
                report.self_check = SelfCheck.Failed
                # The wrong graph may have written anything anywhere, NaN too, which masked slots hand on.
                cache.clear()
                self._lose(phase)
                self._step_down(phase, error)
                self.capture(phase)
            else:
                report.self_check = SelfCheck.Passed
                return

    def check_again(self, passed: OnProgress) -> None:
        """Self-checks every graph of a Ready engine; `passed` is called after each. SelfCheckFailed: nothing is
        captured any more after Ready."""
        for phase in self.captured:
            for _ in self._checker(phase).sizes():
                passed()
                self._counters.add(
                    "graphpod_graph_selfchecks_total",
                    result="passed",
                    phase=phase.value,
                    policy=self.plan.phases[phase].planned.value,
                    backend=self.plan.backend.value,
                )

    def _checker(self, phase: Phase) -> Checker:
        return Checker(
            phase=phase,
            subject=_Faulty(self.captured[phase], phase, self._switches),
            cache=self._device_state.attention.cache,
            vocab=self._device_state.model.shape.vocab,
            max_model_len=self._config.max_model_len,
            long_row=LONG_ROW[self._config.features.device],
            trees=self._config.feature_set().draft_trees,
            ranks=self._capturer.ranks,
            tipped=tipping_of(self._device_state.model.module(), self._capturer.ranks),
            together=TOGETHER if self._device_state.device.type == "cuda" and self._capturer.ranks.count == 1 else 1,
        )

    def _step_down(self, phase: Phase, error: GraphError) -> None:
        """The plan after `error`: a shorter ladder once if memory ran out, pieces uncompiled if one cannot be compiled,
        else a weaker policy.

        StartFailure when `onCaptureFailure` is Fail.
        """
        if isinstance(error, CompileFailed):
            self._forgo_compiling((phase,), error)
            return
        sizes = self.plan.phases[phase].sizes
        if isinstance(error, CaptureOutOfMemory) and phase not in self._shortened and len(sizes) > 1:
            self._shortened.add(phase)
            self.plan = shorten(self.plan, phase, sizes[: len(sizes) // 2], str(error))
        elif self._config.graph.on_capture_failure is OnCaptureFailure.Fail:
            raise StartFailure(
                error.code, f"{error}; set spec.graph.onCaptureFailure: Degrade to run a weaker policy"
            ) from error
        else:
            self.plan = weaken(self.plan, phase, error.rule, str(error))
        self._report.decisions = self.plan.decisions
        self._report.phases[phase].effective = self.plan.phases[phase].planned
        self._tell()

    def _forgo_compiling(self, phases: tuple[Phase, ...], error: CompileFailed) -> None:
        """The plan without what was to be compiled for `phases`. StartFailure when `onCaptureFailure` is Fail."""
        words = f"model {self._config.model.name}: {error}"
        logger.warning("%s", words, exc_info=error)
        if self._config.graph.on_capture_failure is OnCaptureFailure.Fail:
            raise StartFailure(
                error.code,
                f"{words}; the engine's log has the compiler's whole output; set spec.graph.compile: None, or "
                "spec.graph.onCaptureFailure: Degrade to run uncompiled",
            ) from error
        self._capturer.piecewise.forgo_compiling()
        self.plan = uncompiled(self.plan, phases, words)
        self._report.decisions = self.plan.decisions
        self._tell()

    def _lose(self, phase: Phase) -> None:
        self.captured.pop(phase, None)
        report = self._report.phases[phase]
        report.captured = report.checked = report.segments = report.pool_bytes = report.driver_bytes = 0
        report.capture_seconds = report.prepare_seconds = report.warm_seconds = 0.0
        report.costs = ()
        report.failed = self._wanted[phase]


def _no_attention(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """An Attend that attends to nothing; its result is laid out as attention's."""
    return q.new_zeros(q.shape[0], q.shape[1] * q.shape[2])


@dataclass(frozen=True, slots=True)
class _Faulty:
    """The self-check's subject: the graphs themselves, with one replay corrupted when a fault asks for it."""

    captured: PhaseCapture
    phase: Phase
    switches: Switches

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.captured.graphs.sizes

    def replay(self, inputs: Inputs, size: int) -> tuple[Any, ...]:
        results = self.captured.graphs.replay(inputs, size)
        if self.switches.fires(FaultKind.SelfCheck, self.phase, size):
            results[0][-1].neg_()
        return results

    def uncaptured(self, inputs: Inputs, size: int) -> tuple[Any, ...]:
        return self.captured.uncaptured(inputs, size)

    @property
    def compiled_trace(self) -> bool:
        return self.captured.compiled_trace

    def traced(self, inputs: Inputs, size: int) -> tuple[Any, ...]:
        return self.captured.traced(inputs, size)

    def eager(self, inputs: Inputs, size: int) -> tuple[Any, ...]:
        return self.captured.eager(inputs, size)

    def poison_results(self, size: int) -> None:
        self.captured.poison_results(size)
