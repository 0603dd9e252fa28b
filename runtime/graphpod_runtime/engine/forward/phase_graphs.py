"""The graphs of one phase, ready to run live inputs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from graphpod_policy import Policy
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.graphs.buffers import Outputs
from graphpod_runtime.graphs.captured_graph import CapturedGraph
from graphpod_runtime.graphs.segments.segment import Pool


@dataclass(slots=True)
class PhaseGraphs:
    """All write the same output buffers, so a result lives until the next pass."""

    policy: Policy
    pool: Pool
    load: Callable[[Inputs, int], None]
    """Inputs into the static buffers that a graph of this size reads."""
    plan: Callable[[Inputs], None] | None
    """Plans attention for the next pass; None: no graph asks for it."""
    outputs: Outputs
    check_addresses: bool
    """A debug mode."""
    graphs: dict[int, CapturedGraph] = field(default_factory=dict)
    _results: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    """Views of the output buffers by real rows. They are made once: buffers stay where they are."""

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
        if self.check_addresses:
            self.pool.verify()
        if not inputs.in_place:
            self.load(inputs, size)
        if self.plan is not None:
            self.plan(inputs)
        count = inputs.count
        self.graphs[size].replay(count)
        if (results := self._results.get(count)) is None:
            results = self._results[count] = self.outputs.view(count)
        return results
