"""Breakable graphs: the forward runs once under capture; each call of attention ends a segment, runs eagerly, and
opens the next one.

q, k, v and the output of every break live in one arena of largest-size slots, outside the pool and shared by all
layers and sizes: work is in order, so one set of slots is enough. A segment writes its q, k, v there and reads the
output there. A break therefore holds a layer number and nothing else, no pool memory: that memory is another
graph's by the time the break runs again (SGLang #37606, silent wrong tokens).
"""

import traceback
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphpod_runtime.graphs.errors import CaptureFailed, CaptureOutOfMemory, ReplayFailed
from graphpod_runtime.graphs.segment import Pool, Segment
from graphpod_runtime.models.base import HOST, Attend, ModelShape


@dataclass(frozen=True, slots=True)
class Site:
    """Where a graph is captured, for messages."""

    model: str
    phase: str
    size: int

    def __str__(self) -> str:
        return f"model {self.model}, {self.phase} size {self.size}"


class BreakArena:
    """The slots breaks read and write, allocated before any capture for `rows` rows."""

    def __init__(self, shape: ModelShape, rows: int, dtype: torch.dtype, device: torch.device = HOST) -> None:
        self.q = torch.zeros(rows, shape.heads, shape.head_dim, dtype=dtype, device=device)
        self.k = torch.zeros(rows, shape.kv_heads, shape.head_dim, dtype=dtype, device=device)
        self.v = torch.zeros(rows, shape.kv_heads, shape.head_dim, dtype=dtype, device=device)
        self.out = torch.zeros(rows, shape.heads * shape.head_dim, dtype=dtype, device=device)

    def tensors(self) -> dict[str, Tensor]:
        """Every slot by name, for registration."""
        return {"break.q": self.q, "break.k": self.k, "break.v": self.v, "break.out": self.out}


def place(result: Tensor, out: Tensor, count: int) -> None:
    """Attention's `result` for `count` real rows into `out` [size, width], the padded tail zeroed.

    ValueError unless the first dimension is the row count and the elements fit: equal element counts with swapped
    axes would be silent corruption.
    """
    if result.shape[:1] != (count,) or result.numel() != count * out.shape[1]:
        raise ValueError(
            f"attention returned {list(result.shape)} for {count} rows of width {out.shape[1]}; "
            "its first dimension must be the rows, and its elements must fill them"
        )
    out[:count].copy_(result.reshape(count, -1))
    out[count:].zero_()


def narrowed(attend: Attend, size: int, count: int) -> Attend:
    """`attend` as a break sees it, without graph or arena: real rows only, the padded tail zeroed."""

    def run(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = q.new_empty(size, q.shape[1] * q.shape[2])
        place(attend(layer, q[:count], k[:count], v[:count]), out, count)
        return out

    return run


class BreakableGraph:
    """Segments with breaks between them, for one size. Capture by `capture_breakable`."""

    def __init__(self, site: Site, attend: Attend, arena: BreakArena, pool: Pool) -> None:
        self.site = site
        self._attend = attend
        self._arena = arena
        self._pool = pool
        self._segments: list[Segment] = []
        self._layers: list[int] = []

    @property
    def segments(self) -> int:
        """Segments of one forward pass: breaks + 1."""
        return len(self._segments)

    def replay(self, count: int) -> None:
        """Runs the pass over `count` real rows. ReplayFailed names the break whose code raised."""
        for index, layer in enumerate(self._layers):
            self._segments[index].replay()
            try:
                self._break(layer, count)
            except Exception as error:
                raise ReplayFailed(self._where(index, layer, error)) from error
        self._segments[-1].replay()

    def _break(self, layer: int, count: int) -> None:
        arena, size = self._arena, self.site.size
        result = self._attend(layer, arena.q[:count], arena.k[:count], arena.v[:count])
        place(result, arena.out[:size], count)

    def _where(self, index: int, layer: int, error: BaseException) -> str:
        return f"{self.site}, break after segment {index}, layer {layer}: {type(error).__name__}: {error}"

    # capture

    def begin(self) -> None:
        """Opens the next segment."""
        segment = self._pool.segment()
        segment.begin()
        self._segments.append(segment)

    def interrupt(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The Attend of the captured code: a break."""
        size, arena = self.site.size, self._arena
        slots = ((arena.q, q), (arena.k, k), (arena.v, v))
        for slot, value in slots:
            slot[:size].copy_(value)
        self._segments[-1].end()
        index = len(self._layers)
        self._layers.append(layer)
        for slot, _ in slots:
            # A captured write has not happened yet.
            slot[:size].fill_(torch.nan)
        try:
            self._break(layer, size)
        except Exception as error:
            raise _BreakRaised(self._where(index, layer, error)) from error
        self.begin()
        return arena.out[:size]

    def finish(self) -> None:
        """Ends the last segment."""
        self._segments[-1].end()

    def abort(self) -> None:
        """Ends a capture whose code raised inside a segment."""
        self._segments[-1].abort()


class _BreakRaised(CaptureFailed):
    """A break raised during capture: no segment is open."""


def capture_breakable(
    code: Callable[[Attend], None], site: Site, attend: Attend, arena: BreakArena, pool: Pool
) -> BreakableGraph:
    """Captures `code` at `site.size` rows. CaptureFailed and CaptureOutOfMemory name model, layer, segment, size."""
    graph = BreakableGraph(site, attend, arena, pool)
    graph.begin()
    try:
        code(graph.interrupt)
    except _BreakRaised:
        raise
    except BaseException as error:
        graph.abort()
        raise located(error, f"{site}, segment {graph.segments - 1}") from error
    graph.finish()
    return graph


def located(error: BaseException, where: str) -> BaseException:
    """What a failed capture raises: out of memory stays itself, all other failures of the code are CaptureFailed."""
    # Frames of the failed code hold pool tensors; the pool is dropped only when they let go.
    traceback.clear_frames(error.__traceback__)
    if isinstance(error, CaptureOutOfMemory | MemoryError | torch.OutOfMemoryError):
        return CaptureOutOfMemory(f"{where}: {error}")
    if isinstance(error, Exception):
        return CaptureFailed(f"{where}: {error if isinstance(error, CaptureFailed) else repr(error)}")
    return error
