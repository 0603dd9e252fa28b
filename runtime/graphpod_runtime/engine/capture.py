"""The graphs of one phase: captured largest size first into one pool, and run on live inputs."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from graphpod_policy import Backend, Phase, Policy
from graphpod_runtime.attention.base import Backend as AttentionBackend
from graphpod_runtime.engine.counters import Counters
from graphpod_runtime.engine.inputs import Inputs, dummy_inputs
from graphpod_runtime.engine.methods import Eager, Graph, Method, method_of
from graphpod_runtime.engine.passes import Code, Pass
from graphpod_runtime.engine.switches import FaultKind, Mode, Switches
from graphpod_runtime.graphs import tree
from graphpod_runtime.graphs.breakable import BreakArena, Site, located, narrowed
from graphpod_runtime.graphs.breaks import BreakPoint, Narrowed, surrounded
from graphpod_runtime.graphs.errors import CaptureFailed, CaptureOutOfMemory, GraphError
from graphpod_runtime.graphs.piecewise import Traced
from graphpod_runtime.graphs.report import SizeCost
from graphpod_runtime.graphs.segment import Pool
from graphpod_runtime.models.base import Attend, Heard, unheard


class PhaseGraphs:
    """The graphs of one phase. All write the same output buffers, so a result lives until the next pass."""

    def __init__(
        self,
        policy: Policy,
        method: Method,
        passing: Pass,
        attention: AttentionBackend,
        pool: Pool,
        *,
        check_addresses: bool,
        passed: Heard = unheard,
    ) -> None:
        """`passed` hears of every pass of a start, before it begins."""
        self.policy = policy
        self.pool = pool
        self.graphs: dict[int, Graph] = {}
        self.prepare_seconds = self.warm_seconds = 0.0
        self.costs: list[SizeCost] = []
        """Of each capture, in the order of captures."""
        self._method = method
        self._pass = passing
        self._attention = attention
        self._check_addresses = check_addresses
        self._passed = passed

    @property
    def sizes(self) -> tuple[int, ...]:
        """Captured sizes, ascending."""
        return tuple(sorted(self.graphs))

    @property
    def segments(self) -> int:
        """Segments of one forward pass; the same for every size."""
        return max((graph.segments for graph in self.graphs.values()), default=0)

    def replay(self, inputs: Inputs, size: int) -> tuple[Any, ...]:
        """`inputs` on the graph of `size`: views of the output buffers, real rows only."""
        if self._check_addresses:
            self.pool.verify()
        self._load(inputs, size)
        self.graphs[size].replay(inputs.count)
        return self._pass.outputs.view(inputs.count)

    def uncaptured(self, inputs: Inputs, size: int) -> tuple[Any, ...]:
        """The very code that `size` captured, run eagerly on the same buffers: what a replay must equal bit for bit."""
        self._passed()
        self._load(inputs, size)
        with surrounded(Narrowed(size, inputs.count)):
            self._method.code(size)(self._method.attend(size, inputs.count))
        return self._pass.outputs.view(inputs.count)

    @property
    def compiled_trace(self) -> bool:
        """Whether graphs hold a compiled trace of the model's code."""
        return self._method.compiled_trace() is not None

    def traced(self, inputs: Inputs, size: int) -> tuple[Any, ...]:
        """The code of graphs on fresh tensors padded to `size` rows, no static buffer involved."""
        return self._fresh(self._method.compiled_trace() or self._pass.eager, inputs, size)

    def eager(self, inputs: Inputs, size: int) -> tuple[Any, ...]:
        """As `traced`, the model's own code."""
        return self._fresh(self._pass.eager, inputs, size)

    def _fresh(self, run: Eager, inputs: Inputs, size: int) -> tuple[Any, ...]:
        self._passed()
        self._attention.plan(inputs.metadata)
        with surrounded(Narrowed(size, inputs.count)):
            return run(inputs, narrowed(self._attention.over, size, inputs.count), size)

    def poison_results(self, size: int) -> None:
        """Overwrites the output buffers: what a replay does not write is seen."""
        for result in tree.parts(self._pass.outputs.view(size))[0]:
            result.fill_(torch.nan if result.is_floating_point() else -1)

    def _load(self, inputs: Inputs, size: int) -> None:
        self._pass.load(inputs, size)
        self._method.plan(inputs.metadata, size)

    def warm(self, site: Site, page_size: int) -> None:
        """Lets the pool run the code of a size once, uncaptured, on the scratch page. Fails as its capture would."""
        try:
            self.pool.warm(lambda: self.uncaptured(self._dummy(site.size, page_size), site.size))
        except Exception as error:
            raise located(error, f"{site}, before its capture") from error

    def capture(self, site: Site, code: Code, page_size: int) -> None:
        """Adds the graph of the site's size, and what it cost. CaptureFailed and CaptureOutOfMemory say where."""
        with _timed() as clock:
            self._load(self._dummy(site.size, page_size), site.size)
            self.graphs[site.size] = self._method.capture(code, site, self.pool)
        # What was taken before the first capture was taken for the largest size.
        pool_bytes = self.pool.pool_bytes() - sum(cost.pool_bytes for cost in self.costs)
        driver_bytes = self.pool.driver_bytes() - sum(cost.driver_bytes for cost in self.costs)
        self.costs.append(SizeCost(site.size, clock.seconds, pool_bytes, driver_bytes))
        self.poison_results(site.size)

    def _dummy(self, size: int, page_size: int) -> Inputs:
        return dummy_inputs(self._pass.phase, size, page_size, self._pass.outputs.view(1)[0].device)


@dataclass(slots=True)
class Capturer:
    """Captures ladders until Ready, then never again."""

    model: str
    backend: Backend
    attention: AttentionBackend
    breaks: BreakArena
    traced: Traced
    page_size: int
    counters: Counters
    switches: Switches
    new_pool: Callable[[], Pool]
    passed: Heard = unheard
    """Hears of every pass of a start, before it begins."""
    whole: dict[Phase, BreakPoint] = field(default_factory=dict)
    """Each phase's whole pass as a break point, in the debug mode OneBreak."""
    closed: bool = False
    """Latched at Ready."""

    def capture(
        self, passing: Pass, policy: Policy, sizes: tuple[int, ...], captured: Callable[[int], None]
    ) -> PhaseGraphs:
        """Graphs of `passing` for `sizes`, largest first; `captured(n)` is called after the n-th.

        CaptureFailed, CompileFailed or CaptureOutOfMemory leaves nothing behind but counters.
        """
        phase = passing.phase
        if self.closed:
            self.counters.add("graphpod_graph_recaptures_total", phase=phase.value, backend=self.backend.value)
            raise CaptureFailed(f"{phase}: a capture after Ready; every size is captured at start or not at all")
        labels = {"phase": phase.value, "policy": policy.value, "backend": self.backend.value}
        method = method_of(policy, passing, self.attention, self.breaks, self.traced, self.whole.get(phase))
        graphs = PhaseGraphs(
            policy,
            method,
            passing,
            self.attention,
            self.new_pool(),
            check_addresses=Mode.Addresses in self.switches.modes,
            passed=self.passed,
        )
        try:
            with no_collector():
                with _timed() as clock:
                    try:
                        method.prepare()
                    except CaptureFailed as error:
                        raise CaptureFailed(f"model {self.model}, {phase}: {error}") from error
                graphs.prepare_seconds = clock.seconds
                with graphs.pool.capturing():
                    with _timed() as clock:
                        for size in dict.fromkeys((max(sizes), min(sizes))):
                            graphs.warm(Site(self.model, phase.value, size), self.page_size)
                    graphs.warm_seconds = clock.seconds
                    for done, size in enumerate(sorted(sizes, reverse=True), 1):
                        code = self._code(method, phase, size)
                        graphs.capture(Site(self.model, phase.value, size), code, self.page_size)
                        self.counters.add("graphpod_graph_captures_total", result="ok", **labels)
                        took = graphs.costs[-1].seconds
                        self.counters.observe("graphpod_graph_capture_duration_seconds", took, **labels)
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
        return graphs

    def _code(self, method: Method, phase: Phase, size: int) -> Code:
        """The method's code, or code that fails when a fault asks for it."""
        code = method.code(size)
        for kind, error in ((FaultKind.Capture, RuntimeError), (FaultKind.CaptureOom, CaptureOutOfMemory)):
            if self.switches.fires(kind, phase, size):

                def failing(attend: Attend, error: type[Exception] = error) -> None:
                    code(attend)
                    raise error("injected fault")

                return failing
        return code


@dataclass(slots=True)
class _Clock:
    """Seconds of a stretch, once it has ended."""

    seconds: float = 0.0


@contextmanager
def _timed() -> Iterator[_Clock]:
    clock, began = _Clock(), time.perf_counter()
    yield clock
    clock.seconds = time.perf_counter() - began


@contextmanager
def no_collector() -> Iterator[None]:
    """No collection starts of its own accord, which would free tensors in the middle of a capture; one that somebody
    asks for walks little, because what is alive now is set aside.
    """
    collecting = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if collecting:
            gc.enable()
