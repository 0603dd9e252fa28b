"""The graphs of one phase: run on live inputs, by replay or as the code they were captured from."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from graphpod_policy import Policy
from graphpod_runtime.attention.base import AttentionBackend
from graphpod_runtime.base import tensor_pytree
from graphpod_runtime.base.progress import OnProgress, ignore_progress
from graphpod_runtime.engine.forward.graph_policies import Eager, Graph, GraphPolicy
from graphpod_runtime.engine.forward.inputs import Inputs, dummy_inputs
from graphpod_runtime.engine.forward.passes import Code, Pass
from graphpod_runtime.graphs.break_arena import narrowed
from graphpod_runtime.graphs.breaks import Narrowed, surrounded
from graphpod_runtime.graphs.capture_errors import CaptureSite, located
from graphpod_runtime.graphs.segments.segment import Pool
from graphpod_runtime.wire.report import CaptureCost


class PhaseGraphs:
    """The graphs of one phase. All write the same output buffers, so a result lives until the next pass."""

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
        self.policy = policy
        self.pool = pool
        self.graphs: dict[int, Graph] = {}
        self.prepare_seconds = self.warm_seconds = 0.0
        self.costs: list[CaptureCost] = []
        """Of each capture, in the order of captures."""
        self._graph_policy = graph_policy
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
            self._graph_policy.code(size)(self._graph_policy.attend(size, inputs.count))
        return self._pass.outputs.view(inputs.count)

    @property
    def compiled_trace(self) -> bool:
        """Whether graphs hold a compiled trace of the model's code."""
        return self._graph_policy.compiled_trace() is not None

    def traced(self, inputs: Inputs, size: int) -> tuple[Any, ...]:
        """The code of graphs on fresh tensors padded to `size` rows, no static buffer involved."""
        return self._fresh(self._graph_policy.compiled_trace() or self._pass.eager, inputs, size)

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
        for result in tensor_pytree.leaves_of(self._pass.outputs.view(size))[0]:
            result.fill_(torch.nan if result.is_floating_point() else -1)

    def _load(self, inputs: Inputs, size: int) -> None:
        self._pass.load(inputs, size)
        self._graph_policy.plan(inputs.metadata, size)

    def warm(self, site: CaptureSite, page_size: int) -> None:
        """Lets the pool run the code of a size once, uncaptured, on the scratch page. Fails as its capture would."""
        try:
            self.pool.warm(lambda: self.uncaptured(self._dummy(site.size, page_size), site.size))
        except Exception as error:
            raise located(error, f"{site}, before its capture") from error

    def capture(self, site: CaptureSite, code: Code, page_size: int) -> None:
        """Adds the graph of the site's size, and what it cost. CaptureFailed and CaptureOutOfMemory say where."""
        with timed() as clock:
            self._load(self._dummy(site.size, page_size), site.size)
            self.graphs[site.size] = self._graph_policy.capture(code, site, self.pool)
        # What was taken before the first capture was taken for the largest size.
        pool_bytes = self.pool.pool_bytes() - sum(cost.pool_bytes for cost in self.costs)
        driver_bytes = self.pool.driver_bytes() - sum(cost.driver_bytes for cost in self.costs)
        self.costs.append(CaptureCost(site.size, clock.seconds, pool_bytes, driver_bytes))
        self.poison_results(site.size)

    def _dummy(self, size: int, page_size: int) -> Inputs:
        return dummy_inputs(self._pass.phase, size, page_size, self._pass.outputs.view(1)[0].device)


@dataclass(slots=True)
class _Clock:
    """Seconds of a stretch, once it has ended."""

    seconds: float = 0.0


@contextmanager
def timed() -> Iterator[_Clock]:
    clock, began = _Clock(), time.perf_counter()
    yield clock
    clock.seconds = time.perf_counter() - began
