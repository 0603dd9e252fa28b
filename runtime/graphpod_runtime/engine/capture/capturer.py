"""Capture of one phase's graphs at the start: largest size first, into one pool."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from graphpod_policy import Backend, Phase, Policy
from graphpod_runtime.attention.base import AttentionBackend
from graphpod_runtime.base.errors import CaptureFailed, GraphError
from graphpod_runtime.base.progress import OnProgress, ignore_progress
from graphpod_runtime.distributed.agreement import ALONE, Ranks, computing_together
from graphpod_runtime.distributed.collectives import silent
from graphpod_runtime.engine.capture.debug import Mode, Switches
from graphpod_runtime.engine.capture.phase_capture import PhaseCapture, timed
from graphpod_runtime.engine.forward.graph_policies import GraphPolicy, graph_policy_of
from graphpod_runtime.engine.forward.passes import Code, Pass
from graphpod_runtime.graphs.break_arena import BreakArena
from graphpod_runtime.graphs.breaks import BreakPoint
from graphpod_runtime.graphs.capture_errors import CaptureSite
from graphpod_runtime.graphs.piecewise.compilation import PiecewiseCompilation
from graphpod_runtime.graphs.segments.segment import Pool
from graphpod_runtime.wire.counters import Counters


@dataclass(slots=True)
class Capturer:
    """Captures ladders until Ready, then never again."""

    model: str
    backend: Backend
    attention: AttentionBackend
    breaks: BreakArena
    piecewise: PiecewiseCompilation
    page_size: int
    counters: Counters
    switches: Switches
    new_pool: Callable[[], Pool]
    passed: OnProgress = ignore_progress
    """Hears of every pass of a start, before it begins."""
    ranks: Ranks = ALONE
    whole: dict[Phase, BreakPoint] = field(default_factory=dict)
    """Each phase's whole pass as a break point, in the debug mode OneBreak."""
    closed: bool = False
    """Latched at Ready."""

    def capture(
        self, passing: Pass, policy: Policy, sizes: tuple[int, ...], captured: Callable[[int], None]
    ) -> PhaseCapture:
        """The graphs of `passing` for `sizes`, largest first; `captured(n)` is called after the n-th.

        CaptureFailed, CompileFailed or CaptureOutOfMemory leaves nothing behind but counters; RankFailed
        where one of several ranks fails before its captures.
        """
        phase = passing.phase
        if self.closed:
            self.counters.add("graphpod_graph_recaptures_total", phase=phase.value, backend=self.backend.value)
            raise CaptureFailed(f"{phase}: a capture after Ready; every size is captured at start or not at all")
        labels = {"phase": phase.value, "policy": policy.value, "backend": self.backend.value}
        graph_policy = graph_policy_of(
            policy, passing, self.attention, self.breaks, self.piecewise, self.whole.get(phase)
        )
        capture = PhaseCapture(
            policy,
            graph_policy,
            passing,
            self.attention,
            self.new_pool(),
            check_addresses=Mode.Addresses in self.switches.modes,
            passed=self.passed,
        )
        try:
            with no_collector():
                with timed() as clock, self.ranks.agreed():
                    try:
                        graph_policy.prepare()
                    except CaptureFailed as error:
                        if error.agreed:
                            raise
                        raise CaptureFailed(f"model {self.model}, {phase}: {error}") from error
                capture.prepare_seconds = clock.seconds
                with capture.pool.capturing():
                    with timed() as clock:
                        for size in dict.fromkeys((max(sizes), min(sizes))):
                            with computing_together(self.ranks):
                                capture.warm(CaptureSite(self.model, phase.value, size), self.page_size)
                    capture.warm_seconds = clock.seconds
                    for done, size in enumerate(sorted(sizes, reverse=True), 1):
                        code = self._code(graph_policy, phase, size)
                        try:
                            with timed() as clock, self.ranks.agreed(), silent():
                                capture.capture(CaptureSite(self.model, phase.value, size), code, self.page_size)
                        finally:
                            self.counters.observe("graphpod_graph_capture_duration_seconds", clock.seconds, **labels)
                        self.counters.add("graphpod_graph_captures_total", result="ok", **labels)
                        captured(done)
        except GraphError as error:
            self.counters.add("graphpod_graph_captures_total", result="error", **labels)
            self.counters.add(
                "graphpod_graph_capture_failures_total",
                phase=phase.value,
                backend=self.backend.value,
                reason=error.rule,
            )
            raise
        return capture

    def _code(self, graph_policy: GraphPolicy, phase: Phase, size: int) -> Code:
        """The policy's code, or code that fails when a fault asks for it."""
        return self.switches.failing(graph_policy.code(size), phase, size)


@contextmanager
def no_collector() -> Iterator[None]:
    """No collection starts of its own accord, which would free tensors in the middle of a capture; one that somebody
    asks for walks little, because what is alive now is set aside, or what was imported has been since the weights came:
    that stays so.
    """
    collecting, aside = gc.isenabled(), gc.get_freeze_count() > 0
    gc.disable()
    if not aside:
        gc.freeze()
    try:
        yield
    finally:
        if not aside:
            gc.unfreeze()
        if collecting:
            gc.enable()
