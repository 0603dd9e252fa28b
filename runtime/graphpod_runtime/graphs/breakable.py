"""Capture of breakable graphs: the forward runs once under capture. Each call of attention, and of any other break
point (`breaks.py`), ends a segment, runs eagerly, and opens the next one. What crosses a break lies in
`break_arena.py`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from graphpod_runtime.base.errors import CaptureFailed, DeviceFailed, GraphError
from graphpod_runtime.base.model_body import Attend
from graphpod_runtime.graphs.break_arena import AttendInto, BreakArena, Stage
from graphpod_runtime.graphs.breaks import BreakPoint, Stop, surrounded
from graphpod_runtime.graphs.capture_errors import CaptureSite, failure_of, located
from graphpod_runtime.graphs.captured_graphs import BreakableGraph
from graphpod_runtime.graphs.segments.segment import Pool, Segment


class BreakableCapture:
    """The capture of `graph`, by `capture_breakable`."""

    segment: Segment
    """The one that is being captured, or was last."""

    def __init__(
        self, site: CaptureSite, attend: AttendInto, arena: BreakArena, pool: Pool, stage: Stage | None = None
    ) -> None:
        self.graph = BreakableGraph(site, attend, arena)
        self.site = site
        self._attend, self._stage = attend, stage or arena.stage
        self._arena = arena
        self._pool = pool
        self._run: Callable[[int], Tensor] | None = None
        """Attention over the slots, which all layers share."""
        self.open = False
        """Whether the last segment is being captured."""

    def begin(self) -> None:
        """Opens the next segment."""
        self.segment = self._pool.segment()
        self.segment.begin()
        self.open = True

    def interrupt(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The Attend of the captured code: a break."""
        size, arena = self.site.size, self._arena
        rows = arena.rows(size, size)
        self._stage(layer, (q, k, v), (rows.q, rows.k, rows.v))
        with self._stopped(layer, (rows.q, rows.k, rows.v)):
            self._run = self._run or self._attend(rows.q, rows.k, rows.v, rows.out)
            self.graph.attend(layer, rows, self._run)
        return arena.out[:size]

    def meet(self, point: BreakPoint, layer: int, rows: tuple[Tensor, ...]) -> Any:
        """A call of another break point in the captured code."""
        size = self.site.size
        if any(row.shape[0] != size for row in rows):
            shapes = ", ".join(str(list(row.shape)) for row in rows)
            raise CaptureFailed(
                f"layer {layer} calls {point.name} with {shapes}; the first dimension must be the {size} rows"
            )
        slots = self._arena.others.of(point, rows)
        places = tuple(slot[:size] for slot in slots.arguments)
        for row, argument in zip(rows, places, strict=True):
            argument.copy_(row)
        stop = Stop(point, layer, slots, size)
        with self._stopped(stop, places):
            stop.run(size)
        return slots.result(size)

    @contextmanager
    def _stopped(self, stop: int | Stop, written: tuple[Tensor, ...]) -> Iterator[None]:
        """Between two segments, the first of which has `written` there: no capture, no surroundings."""
        self.finish()
        self.graph.stops.append(stop)
        for slot in written:
            # A captured write has not happened yet. Integers may be indices: the break must be able to run with them.
            slot.fill_(torch.nan if slot.is_floating_point() else 0)
        try:
            with surrounded(None):
                yield
        except Exception as error:
            raise failure_of(error)(self.graph.where(len(self.graph.stops) - 1, error)) from error
        self.begin()

    def finish(self) -> None:
        """Ends the last segment."""
        self.graph.calls.append(self.segment.end())
        self.open = False

    def abort(self) -> None:
        """Ends a capture whose code raised inside a segment."""
        self.segment.abort()


def capture_breakable(
    code: Callable[[Attend], None],
    site: CaptureSite,
    attend: AttendInto,
    arena: BreakArena,
    pool: Pool,
    stage: Stage | None = None,
) -> BreakableGraph:
    """Captures `code` at `site.size` rows; segments end with `stage`, or by copying to the arena. CaptureFailed and
    CaptureOutOfMemory name model, layer, segment, size.
    """
    capture = BreakableCapture(site, attend, arena, pool, stage)
    capture.begin()
    try:
        with surrounded(capture):
            code(capture.interrupt)
    except BaseException as error:
        if capture.open:
            capture.abort()
        elif isinstance(error, GraphError | DeviceFailed):
            # A break raised, and has said where.
            raise
        raise located(error, f"{site}, segment {len(capture.graph.stops)}") from error
    capture.finish()
    return capture.graph
