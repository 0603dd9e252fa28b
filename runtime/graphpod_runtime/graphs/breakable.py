"""Breakable graphs: the forward runs once under capture; each call of attention, and of any other break point
(`breaks.py`), ends a segment, runs eagerly, and opens the next one. What crosses a break lies in `break_arena.py`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from graphpod_runtime.base.errors import CaptureFailed, DeviceFailed, GraphError, ReplayFailed
from graphpod_runtime.base.model_body import Attend
from graphpod_runtime.graphs.break_arena import AttendInto, AttentionRows, BreakArena, put_result
from graphpod_runtime.graphs.breaks import BreakPoint, Stop, surrounded
from graphpod_runtime.graphs.capture_errors import CaptureSite, failure_of, located
from graphpod_runtime.graphs.segments.segment import Pool, Segment


class BreakableGraph:
    """Segments with breaks between them, for one size. Capture by `capture_breakable`."""

    def __init__(self, site: CaptureSite, attend: AttendInto, arena: BreakArena, pool: Pool) -> None:
        self.site = site
        self._attend = attend
        self._arena = arena
        self._pool = pool
        self._segments: list[Segment] = []
        self._stops: list[int | Stop] = []
        """What runs after each segment but the last: attention of a layer, or another break point."""
        self.open = False
        """Whether the last segment is being captured."""

    @property
    def segments(self) -> int:
        """Segments of one forward pass: breaks + 1."""
        return len(self._segments)

    def replay(self, count: int) -> None:
        """Runs the pass over `count` real rows. ReplayFailed names the break whose code raised."""
        rows = self._arena.rows(self.site.size, count)
        if rows.tail.shape[0]:
            # Once: no segment and no break of this pass writes it.
            rows.tail.zero_()
        try:
            attend = self._attend(rows.q, rows.k, rows.v, rows.out)
        except Exception as error:
            raise ReplayFailed(f"{self.site}, before its first break: {type(error).__name__}: {error}") from error
        for index, stop in enumerate(self._stops):
            self._segments[index].replay()
            try:
                if isinstance(stop, Stop):
                    stop.run(count)
                else:
                    self._break(stop, rows, attend)
            except Exception as error:
                raise ReplayFailed(self._where(index, error)) from error
        self._segments[-1].replay()

    def _break(self, layer: int, rows: AttentionRows, attend: Callable[[int], Tensor]) -> None:
        put_result(attend(layer), rows.out)

    def _where(self, index: int, error: BaseException) -> str:
        stop = self._stops[index]
        which = str(stop) if isinstance(stop, Stop) else f"layer {stop}"
        return f"{self.site}, break after segment {index}, {which}: {type(error).__name__}: {error}"

    # capture

    def begin(self) -> None:
        """Opens the next segment."""
        segment = self._pool.segment()
        segment.begin()
        self._segments.append(segment)
        self.open = True

    def interrupt(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The Attend of the captured code: a break."""
        size, arena = self.site.size, self._arena
        rows = arena.rows(size, size)
        arena.kernels.stage((q, k, v), (rows.q, rows.k, rows.v))
        with self._stopped(layer, (rows.q, rows.k, rows.v)):
            self._break(layer, rows, self._attend(rows.q, rows.k, rows.v, rows.out))
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
        self._stops.append(stop)
        for slot in written:
            # A captured write has not happened yet. Integers may be indices: the break must be able to run with them.
            slot.fill_(torch.nan if slot.is_floating_point() else 0)
        try:
            with surrounded(None):
                yield
        except Exception as error:
            raise failure_of(error)(self._where(len(self._stops) - 1, error)) from error
        self.begin()

    def finish(self) -> None:
        """Ends the last segment."""
        self._segments[-1].end()
        self.open = False

    def abort(self) -> None:
        """Ends a capture whose code raised inside a segment."""
        self._segments[-1].abort()


def capture_breakable(
    code: Callable[[Attend], None], site: CaptureSite, attend: AttendInto, arena: BreakArena, pool: Pool
) -> BreakableGraph:
    """Captures `code` at `site.size` rows. CaptureFailed and CaptureOutOfMemory name model, layer, segment, size."""
    graph = BreakableGraph(site, attend, arena, pool)
    graph.begin()
    try:
        with surrounded(graph):
            code(graph.interrupt)
    except BaseException as error:
        if graph.open:
            graph.abort()
        elif isinstance(error, GraphError | DeviceFailed):
            # A break raised, and has said where.
            raise
        raise located(error, f"{site}, segment {graph.segments - 1}") from error
    graph.finish()
    return graph
