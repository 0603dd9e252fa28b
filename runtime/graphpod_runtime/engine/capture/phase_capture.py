"""The code of one phase's graphs: it is captured, and it runs uncaptured for what a replay is compared with."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from graphpod_policy import Policy
from graphpod_runtime.attention.base import AttentionBackend
from graphpod_runtime.base import tensor_pytree
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.base.progress import OnProgress, ignore_progress
from graphpod_runtime.engine.forward.graph_policies import Eager, GraphPolicy
from graphpod_runtime.engine.forward.inputs import dummy_inputs, padded_step
from graphpod_runtime.engine.forward.passes import Code, Pass, first_rows
from graphpod_runtime.engine.forward.stage_passes import StageDecode, StageGraphs, StagePrefill
from graphpod_runtime.graphs.break_arena import narrowed
from graphpod_runtime.graphs.breaks import Narrowed, surrounded
from graphpod_runtime.graphs.capture_errors import CaptureSite, located
from graphpod_runtime.graphs.captured_graphs import PhaseGraphs
from graphpod_runtime.graphs.segments.segment import Pool
from graphpod_runtime.wire.report import CaptureCost


class PhaseCapture:
    """Makes `graphs`."""

    def __init__(
        self,
        policy: Policy,
        graph_policy: GraphPolicy,
        passing: Pass,
        attention: AttentionBackend,
        pool: Pool,
        *,
        check_addresses: bool,
        passed: OnProgress = ignore_progress,
    ) -> None:
        """`passed` hears of every pass of a start, before it begins."""
        staged = isinstance(passing, StagePrefill | StageDecode)
        make = partial(StageGraphs, passing=passing) if staged else PhaseGraphs
        self.graphs = make(
            policy, pool, graph_policy.load, graph_policy.plan, passing.outputs, check_addresses=check_addresses
        )
        self.pool = pool
        self.prepare_seconds = self.warm_seconds = 0.0
        self.costs: list[CaptureCost] = []
        """Of each capture, in the order of captures."""
        self._policy = graph_policy
        self._passing = passing
        self._attention = attention
        self._passed = passed

    def uncaptured(self, inputs: Inputs, size: int) -> tuple[Any, ...]:
        """The very code that `size` captured, run eagerly on the same buffers: what a replay must equal bit for bit."""
        self._passed()
        self._prepare(inputs, size)
        with surrounded(Narrowed(size, inputs.count)):
            self._policy.code(size)(self._policy.attend(size, inputs.count))
        results = self._passing.outputs.view(inputs.count)
        if isinstance(self.graphs, StageGraphs):
            self.graphs.passing.leave(results)
        return results

    @property
    def compiled_trace(self) -> bool:
        """Whether graphs hold a compiled trace of the model's code."""
        return self._policy.compiled_trace() is not None

    def traced(self, inputs: Inputs, size: int) -> tuple[Any, ...]:
        """The code of graphs on fresh tensors padded to `size` rows, no static buffer involved. Attention sees the
        padded rows where graphs hold it: kernels may round by the number of all rows."""
        return self._fresh(self._policy.compiled_trace() or self._passing.eager, inputs, size)

    def eager(self, inputs: Inputs, size: int) -> tuple[Any, ...]:
        """As `traced`, the model's own code."""
        return self._fresh(self._passing.eager, inputs, size)

    def _fresh(self, run: Eager, inputs: Inputs, size: int) -> tuple[Any, ...]:
        self._passed()
        if self._policy.holds_attention and size > inputs.count:
            whole = padded_step(inputs, size)
            self._attention.plan(whole)
            return first_rows(run(whole, self._attention.run, size), inputs.count)
        self._attention.plan(inputs)
        with surrounded(Narrowed(size, inputs.count)):
            return run(inputs, narrowed(self._attention.over, size, inputs.count), size)

    def poison_results(self, size: int) -> None:
        """Overwrites the output buffers: what a replay does not write is seen."""
        for result in tensor_pytree.leaves_of(self._passing.outputs.view(size))[0]:
            result.fill_(torch.nan if result.is_floating_point() else -1)

    def _prepare(self, inputs: Inputs, size: int) -> None:
        self._policy.load(inputs, size)
        if (plan := self._policy.plan) is not None:
            plan(inputs)

    def warm(self, site: CaptureSite, page_size: int) -> None:
        """Lets the pool run the code of a size once, uncaptured, on the scratch page. Fails as its capture would."""
        try:
            self.pool.warm(lambda: self.uncaptured(self._dummy(site.size, page_size), site.size))
        except Exception as error:
            raise located(error, f"{site}, before its capture") from error

    def capture(self, site: CaptureSite, code: Code, page_size: int) -> None:
        """Adds the graph of the site's size, and what it cost. CaptureFailed and CaptureOutOfMemory say where."""
        with timed() as clock:
            self._prepare(self._dummy(site.size, page_size), site.size)
            self.graphs.graphs[site.size] = self._policy.capture(code, site, self.pool)
        # What was taken before the first capture was taken for the largest size.
        pool_bytes = self.pool.pool_bytes() - sum(cost.pool_bytes for cost in self.costs)
        driver_bytes = self.pool.driver_bytes() - sum(cost.driver_bytes for cost in self.costs)
        self.costs.append(CaptureCost(site.size, clock.seconds, pool_bytes, driver_bytes))
        self.poison_results(site.size)

    def _dummy(self, size: int, page_size: int) -> Inputs:
        return dummy_inputs(self._passing.phase, size, page_size, self._passing.outputs.view(1)[0].device)


@dataclass(slots=True)
class _Clock:
    """Seconds of a stretch, once it has ended."""

    seconds: float = 0.0


@contextmanager
def timed() -> Iterator[_Clock]:
    """Times what is done within, also if that raises."""
    clock, began = _Clock(), time.perf_counter()
    try:
        yield clock
    finally:
        clock.seconds = time.perf_counter() - began
