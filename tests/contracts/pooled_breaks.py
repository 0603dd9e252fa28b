"""A bug put back: SGLang #37606, a break whose output lives in the graph pool and is held by its address only."""

from collections.abc import Callable

import torch
from torch import Tensor

from graphpod_runtime.graphs.break_arena import AttendInto, AttentionRows, BreakArena, Stage, put_result
from graphpod_runtime.graphs.breakable import BreakableCapture
from graphpod_runtime.graphs.capture_errors import CaptureSite
from graphpod_runtime.graphs.captured_graphs import BreakableGraph
from graphpod_runtime.graphs.segments.segment import Pool


class PooledGraph(BreakableGraph):
    """Its breaks read and write what the pool had at capture."""

    weak: dict[int, list[Tensor]]
    kept: list[Tensor]
    """Whose blocks somebody keeps."""

    def attend(self, layer: int, rows: AttentionRows, attend: Callable[[int], Tensor]) -> None:
        q, k, v, out = self.weak[layer]
        count = rows.q.shape[0]
        put_result(self._attend(q[:count], k[:count], v[:count], out[:count])(layer), out[:count])
        out[count:].zero_()


class PooledBreaks(BreakableCapture):
    """Breaks without the arena. The pool may give an output's block to the segment that reads it, which then writes it
    before it reads.

    `owned` tells whether somebody else keeps the blocks: then the same code is right, so what makes it wrong is the
    weak hold and nothing else.
    """

    owned = False

    def __init__(
        self, site: CaptureSite, attend: AttendInto, arena: BreakArena, pool: Pool, stage: Stage | None = None
    ) -> None:
        super().__init__(site, attend, arena, pool, stage)
        self.graph = self.pooled = PooledGraph(site, attend, arena)
        self.pooled.weak = {}
        self.pooled.kept = []

    def interrupt(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = q.new_empty(self.site.size, q.shape[1] * q.shape[2])
        tensors = [q.contiguous(), k.contiguous(), v.contiguous(), out]
        self.graph.calls.append(self.segment.end())
        self.graph.stops.append(layer)
        self.pooled.kept += tensors[: 4 if self.owned else 3]
        self.pooled.weak[layer] = [_address(tensor) for tensor in tensors]
        rows = self._arena.rows(self.site.size, self.site.size)
        self.graph.attend(layer, rows, self._attend(rows.q, rows.k, rows.v, rows.out))
        shape = out.shape
        del out, tensors
        self.begin()
        # Whatever a segment writes before it reads the output of its break.
        q.new_zeros(shape)
        return self.pooled.weak[layer][3]


class OwnedBreaks(PooledBreaks):
    """The same with its blocks kept."""

    owned = True


def _address(tensor: Tensor) -> Tensor:
    """The same memory, not owned."""
    storage = torch._C._construct_storage_from_data_pointer(
        tensor.data_ptr(), tensor.device, tensor.numel() * tensor.itemsize
    )
    return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage, 0, tensor.shape, tensor.stride())
