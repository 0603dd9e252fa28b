"""Breakable graphs: the forward runs once under capture; each call of attention, and of any other break point
(`breaks.py`), ends a segment, runs eagerly, and opens the next one.

q, k, v and the output of every break live in one arena of largest-size slots, outside the pool and shared by all
layers and sizes: work is in order, so one set of slots is enough. A segment writes its q, k, v there and reads the
output there. A break therefore holds a layer number and nothing else, no pool memory: that memory is another
graph's by the time the break runs again (SGLang #37606, silent wrong tokens).
"""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphpod_runtime.graphs.breaks import BreakPoint, BreakSlots, Stop, surrounded
from graphpod_runtime.graphs.errors import CaptureFailed, CaptureOutOfMemory, DeviceFailed, GraphError, ReplayFailed
from graphpod_runtime.graphs.segment import Pool, Segment
from graphpod_runtime.kernels.rows import rows_for
from graphpod_runtime.models.base import HOST, Attend, ModelShape

Break = Callable[[Tensor, Tensor, Tensor, Tensor], Callable[[int], Tensor]]
"""(q, k, v, where results may go) -> (layer) -> the result: attention as the breaks of one pass call it."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where a graph is captured, for messages."""

    model: str
    phase: str
    size: int

    def __str__(self) -> str:
        return f"model {self.model}, {self.phase} size {self.size}"


class Rows(NamedTuple):
    """What the breaks of one pass read and write: real rows of every slot, and the padded tail of the output."""

    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    tail: Tensor


class BreakArena:
    """The slots breaks read and write, allocated before any capture for `rows` rows."""

    def __init__(self, shape: ModelShape, rows: int, dtype: torch.dtype, device: torch.device = HOST) -> None:
        self.q = torch.zeros(rows, shape.heads, shape.head_dim, dtype=dtype, device=device)
        self.k = torch.zeros(rows, shape.kv_heads, shape.head_dim, dtype=dtype, device=device)
        self.v = torch.zeros(rows, shape.kv_heads, shape.head_dim, dtype=dtype, device=device)
        self.out = torch.zeros(rows, shape.heads * shape.head_dim, dtype=dtype, device=device)
        self.kernels = rows_for(device)
        self.others = BreakSlots(rows)
        """Of break points other than attention."""

    def rows(self, size: int, count: int) -> Rows:
        """For `count` real rows in a graph of `size`."""
        return Rows(self.q[:count], self.k[:count], self.v[:count], self.out[:count], self.out[count:size])

    def tensors(self) -> dict[str, Tensor]:
        """Every slot by name, for registration."""
        attention = {"break.q": self.q, "break.k": self.k, "break.v": self.v, "break.out": self.out}
        return attention | self.others.tensors()


def place(result: Tensor, out: Tensor) -> None:
    """Attention's `result` into `out` [rows, width], unless attention wrote it there itself.

    ValueError unless the first dimension is the row count and the elements fit: equal element counts with swapped
    axes would be silent corruption.
    """
    count, width = out.shape
    if result.shape[0] != count or result.numel() != count * width:
        raise ValueError(
            f"attention returned {list(result.shape)} for {count} rows of width {width}; "
            "its first dimension must be the rows, and its elements must fill them"
        )
    if result.data_ptr() != out.data_ptr() or not result.is_contiguous():
        out.copy_(result.reshape(count, -1))


def narrowed(attend: Break, size: int, count: int) -> Attend:
    """`attend` as a break sees it, without graph or arena: real rows only, the padded tail zeroed."""

    def run(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = q.new_empty(size, q.shape[1] * q.shape[2])
        place(attend(q[:count], k[:count], v[:count], out[:count])(layer), out[:count])
        out[count:].zero_()
        return out

    return run


class BreakableGraph:
    """Segments with breaks between them, for one size. Capture by `capture_breakable`."""

    def __init__(self, site: Site, attend: Break, arena: BreakArena, pool: Pool) -> None:
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

    def _break(self, layer: int, rows: Rows, attend: Callable[[int], Tensor]) -> None:
        place(attend(layer), rows.out)

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
            raise _kind_of(error)(self._where(len(self._stops) - 1, error)) from error
        self.begin()

    def finish(self) -> None:
        """Ends the last segment."""
        self._segments[-1].end()
        self.open = False

    def abort(self) -> None:
        """Ends a capture whose code raised inside a segment."""
        self._segments[-1].abort()


def capture_breakable(
    code: Callable[[Attend], None], site: Site, attend: Break, arena: BreakArena, pool: Pool
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


def located(error: BaseException, where: str) -> BaseException:
    """What a failed capture raises: the allocator's out of memory stays itself, an error of the device is DeviceFailed,
    all other failures of the code are CaptureFailed.
    """
    # Frames of the failed code hold pool tensors; the pool is dropped only when they let go.
    traceback.clear_frames(error.__traceback__)
    if not isinstance(error, Exception):
        return error
    told = error if _kind_of(error) is not CaptureFailed or isinstance(error, GraphError) else repr(error)
    return _kind_of(error)(f"{where}: {told}")


def _kind_of(error: Exception) -> type[CaptureFailed | CaptureOutOfMemory | DeviceFailed]:
    """What an error in captured code or in a break at capture amounts to."""
    if isinstance(error, CaptureOutOfMemory | MemoryError | torch.OutOfMemoryError):
        return CaptureOutOfMemory
    return DeviceFailed if isinstance(error, torch.AcceleratorError | DeviceFailed) else CaptureFailed
