"""Captured graphs, of one size and of a phase: what a replay needs of them, and nothing of their capture."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from torch import Tensor

from graphpod_policy import Policy
from graphpod_runtime.base.errors import ReplayFailed
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.graphs.break_arena import AttendInto, AttentionRows, BreakArena, put_result
from graphpod_runtime.graphs.breaks import Stop
from graphpod_runtime.graphs.buffers import Outputs
from graphpod_runtime.graphs.capture_errors import CaptureSite
from graphpod_runtime.graphs.segments.segment import Calls, Pool


class CapturedGraph(Protocol):
    """A pass of one size."""

    site: CaptureSite

    @property
    def segments(self) -> int: ...

    def replay(self, count: int, plan: Callable[[], None] = lambda: None) -> None:
        """Runs the pass over `count` real rows. `plan` is called before the first attention."""


class FullGraph:
    """One segment. Padded rows run too, on the scratch page, so the real count makes no difference."""

    segments = 1

    def __init__(self, site: CaptureSite, calls: Calls) -> None:
        self.site, self._calls = site, calls

    def replay(self, count: int, plan: Callable[[], None] = lambda: None) -> None:
        plan()
        for call in self._calls:
            call()


class BreakableGraph:
    """Segments with breaks between them. `capture_breakable` fills it."""

    def __init__(self, site: CaptureSite, attend: AttendInto, arena: BreakArena) -> None:
        self.site = site
        self.calls: list[Calls] = []
        """Of each segment."""
        self.stops: list[int | Stop] = []
        """What runs after each segment but the last: attention of a layer, or another break point."""
        self._attend, self._arena = attend, arena

    @property
    def segments(self) -> int:
        """Breaks + 1."""
        return len(self.calls)

    def replay(self, count: int, plan: Callable[[], None] = lambda: None) -> None:
        """ReplayFailed names the break whose code raised. What has run by then, the next replay writes again."""
        rows = self._arena.rows(self.site.size, count)
        if rows.tail.shape[0]:
            rows.tail.zero_()  # once: no segment and no break of this pass writes it
        for call in self.calls[0]:
            call()
        try:
            plan()  # the device has the first segment meanwhile
            attend = self._attend(rows.q, rows.k, rows.v, rows.out)
        except Exception as error:
            raise ReplayFailed(f"{self.site}, before its first break: {type(error).__name__}: {error}") from error
        for index, stop in enumerate(self.stops):
            try:
                if isinstance(stop, Stop):
                    stop.run(count)
                else:
                    self.attend(stop, rows, attend)
            except Exception as error:
                raise ReplayFailed(self.where(index, error)) from error
            for call in self.calls[index + 1]:
                call()

    def attend(self, layer: int, rows: AttentionRows, attend: Callable[[int], Tensor]) -> None:
        """The break of a layer."""
        put_result(attend(layer), rows.out)

    def where(self, index: int, error: BaseException) -> str:
        """What a break raised, and which."""
        stop = self.stops[index]
        which = str(stop) if isinstance(stop, Stop) else f"layer {stop}"
        return f"{self.site}, break after segment {index}, {which}: {type(error).__name__}: {error}"


@dataclass(slots=True)
class PhaseGraphs:
    """The graphs of one phase, ready to run live inputs. All write the same output buffers, so a result lives until the
    next pass."""

    policy: Policy
    pool: Pool
    load: Callable[[Inputs, int], None]
    """Inputs into the static buffers that a graph of this size reads."""
    plan: Callable[[Inputs], None] | None
    """Plans attention for the pass; None: no graph asks for it."""
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
        count, plan = inputs.count, () if self.plan is None else (partial(self.plan, inputs),)
        self.graphs[size].replay(count, *plan)
        if (results := self._results.get(count)) is None:
            results = self._results[count] = self.outputs.view(count)
        return results
