"""How each policy makes the graphs of a phase: what is captured, and what a replay and its uncaptured twin read."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from graphpod_policy import Policy
from graphpod_runtime.attention.base import AttentionBackend
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.base.model_body import Attend
from graphpod_runtime.engine.forward.passes import Code, Pass, PrefillPass
from graphpod_runtime.graphs.break_arena import BreakArena, narrowed
from graphpod_runtime.graphs.breakable import capture_breakable
from graphpod_runtime.graphs.breaks import BreakPoint
from graphpod_runtime.graphs.capture_errors import CaptureSite
from graphpod_runtime.graphs.captured_graphs import BreakableGraph, CapturedGraph, FullGraph
from graphpod_runtime.graphs.full import capture_full
from graphpod_runtime.graphs.piecewise.compilation import PiecewiseCompilation
from graphpod_runtime.graphs.segments.segment import Pool

Eager = Callable[[Inputs, Attend, int], tuple[Any, ...]]
"""Is a pass's `eager`: (inputs, attend, size) -> results."""


Load = Callable[[Inputs, int], None]
"""(inputs, size)"""


class GraphPolicy(Protocol):
    """One policy over one phase's pass."""

    @property
    def holds_attention(self) -> bool:
        """Whether attention is in the graphs, where it computes padded rows, too."""

    def prepare(self) -> None:
        """Makes what all sizes share (a trace, compiled pieces), once, before the first of them is warmed up.
        CaptureFailed or CompileFailed says why it cannot be made."""

    def code(self, size: int) -> Code:
        """What a graph of `size` captures."""

    def attend(self, size: int, count: int) -> Attend:
        """Attention for `code` run eagerly over `count` real rows: what it computes on the graph of `size`."""

    @property
    def load(self) -> Load:
        """Takes inputs into the static buffers that code of this size reads."""

    @property
    def plan(self) -> Callable[[Inputs], None] | None:
        """Plans attention for the next pass, on a graph or by `attend`; None: it reads static buffers alone."""

    def compiled_trace(self) -> Eager | None:
        """The compiled code that graphs hold where it is not the model's own, for fresh tensors; None where a pass's
        `eager` runs the same."""

    def capture(self, code: Code, site: CaptureSite, pool: Pool) -> CapturedGraph:
        """`code` as a graph of `site.size` in `pool`. CaptureFailed and CaptureOutOfMemory say where."""


@dataclass(frozen=True, slots=True)
class Breakable:
    """Attention is a break: it sees the live, unpadded batch."""

    passing: Pass
    attention: AttentionBackend
    breaks: BreakArena

    @property
    def holds_attention(self) -> bool:
        return False

    def prepare(self) -> None:
        """Nothing: each size is captured from the model's own code."""

    def code(self, size: int) -> Code:
        return self.passing.code(size)

    def attend(self, size: int, count: int) -> Attend:
        return narrowed(self.attention.over, size, count)

    @property
    def load(self) -> Load:
        return self.passing.load

    @property
    def plan(self) -> Callable[[Inputs], None]:
        return self.attention.plan

    def compiled_trace(self) -> Eager | None:
        return None

    def capture(self, code: Code, site: CaptureSite, pool: Pool) -> BreakableGraph:
        slots = self.passing.slots
        if slots is None or (own := self.attention.staging(slots)) is None:
            return capture_breakable(code, site, self.attention.over, self.breaks, pool)
        return capture_breakable(code, site, own.attend, self.breaks, pool, own.stage)


@dataclass(frozen=True, slots=True)
class Piecewise(Breakable):
    """As Breakable, from the body's trace instead of its code."""

    passing: PrefillPass
    compilation: PiecewiseCompilation

    def prepare(self) -> None:
        self.compilation.body  # noqa: B018 (traces)

    def code(self, size: int) -> Code:
        return self.passing.code_of(self.compilation.body, size)

    def compiled_trace(self) -> Eager | None:
        return partial(self.passing.eager_of, self.compilation.body) if self.compilation.compiles else None


@dataclass(frozen=True, slots=True)
class Full:
    """Attention is captured with the rest: it reads the padded batch from static buffers."""

    passing: Pass
    attention: AttentionBackend

    @property
    def holds_attention(self) -> bool:
        return True

    def prepare(self) -> None:
        """Nothing: each size is captured from the model's own code."""

    def code(self, size: int) -> Code:
        return self.passing.code(size)

    def attend(self, size: int, count: int) -> Attend:
        return self.attention.run

    @property
    def load(self) -> Load:
        return self._load

    def _load(self, inputs: Inputs, size: int) -> None:
        self.passing.load(inputs, size)
        self.attention.plan_step(inputs, size)

    @property
    def plan(self) -> None:
        return None

    def compiled_trace(self) -> Eager | None:
        return None

    def capture(self, code: Code, site: CaptureSite, pool: Pool) -> FullGraph:
        return capture_full(code, site, self.attention.run, pool)


@dataclass(frozen=True, slots=True)
class OneBreak:
    """A debug mode in the place of any policy: the whole pass is a break, which takes its arguments and results."""

    passing: Pass
    attention: AttentionBackend
    breaks: BreakArena
    whole: BreakPoint

    @property
    def holds_attention(self) -> bool:
        return False

    def prepare(self) -> None:
        """Nothing: the break was rehearsed with the buffers."""

    def code(self, size: int) -> Code:
        rows = self.passing.arguments(size)
        return lambda attend: self.passing.outputs.write(self.whole(0, *rows))

    def attend(self, size: int, count: int) -> Attend:
        return self.attention.run

    @property
    def load(self) -> Load:
        return self.passing.load

    @property
    def plan(self) -> Callable[[Inputs], None]:
        return self.attention.plan

    def compiled_trace(self) -> Eager | None:
        return None

    def capture(self, code: Code, site: CaptureSite, pool: Pool) -> BreakableGraph:
        return capture_breakable(code, site, self.attention.over, self.breaks, pool)


def graph_policy_of(
    policy: Policy,
    passing: Pass,
    attention: AttentionBackend,
    breaks: BreakArena,
    compilation: PiecewiseCompilation,
    whole: BreakPoint | None = None,
) -> GraphPolicy:
    """That of `policy`, which is not Disabled; with the `whole` pass as a break point, OneBreak instead."""
    if whole is not None:
        return OneBreak(passing, attention, breaks, whole)
    match policy:
        case Policy.Breakable:
            return Breakable(passing, attention, breaks)
        case Policy.Piecewise if isinstance(passing, PrefillPass):
            return Piecewise(passing, attention, breaks, compilation)
        case Policy.Full:
            return Full(passing, attention)
    raise ValueError(f"{policy} makes no graphs of {passing.phase}")
