"""What crosses a break of attention: one arena of largest-size slots.

q, k, v and the output of every break live outside the pool, shared by all layers and sizes: work is in order, so one
set of slots is enough. A segment writes its q, k, v there and reads the output there. A break therefore holds a layer
number and nothing else, no pool memory: that memory is another graph's by the time the break runs again
(SGLang #37606, silent wrong tokens).
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from graphpod_runtime.base.model_body import Attend
from graphpod_runtime.base.shapes import HOST, ModelShape
from graphpod_runtime.graphs.breaks import BreakSlots
from graphpod_runtime.kernels.rows.row_copies import rows_for

AttendInto = Callable[[Tensor, Tensor, Tensor, Tensor], Callable[[int], Tensor]]
"""(q, k, v, where results may go) -> (layer) -> the result: attention as the breaks of one pass call it."""
Stage = Callable[[int, tuple[Tensor, ...], tuple[Tensor, ...]], None]
"""(layer, q, k and v, their places of the same rows): how a segment ends, padded rows included."""


class Staging(NamedTuple):
    """A backend's own way across a break: what its segments end with, and attention over what that left."""

    stage: Stage
    attend: AttendInto


class AttentionRows(NamedTuple):
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

    def stage(self, layer: int, sources: tuple[Tensor, ...], places: tuple[Tensor, ...]) -> None:
        """Is a Stage: copies."""
        self.kernels.stage(sources, places)

    def rows(self, size: int, count: int) -> AttentionRows:
        """For `count` real rows in a graph of `size`."""
        return AttentionRows(self.q[:count], self.k[:count], self.v[:count], self.out[:count], self.out[count:size])

    def tensors(self) -> dict[str, Tensor]:
        """Every slot by name, for registration."""
        attention = {"break.q": self.q, "break.k": self.k, "break.v": self.v, "break.out": self.out}
        return attention | self.others.tensors()


def put_result(result: Tensor, out: Tensor) -> None:
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


def narrowed(attend: AttendInto, size: int, count: int) -> Attend:
    """`attend` as a break sees it, without graph or arena: real rows only, the padded tail zeroed."""

    def run(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = q.new_empty(size, q.shape[1] * q.shape[2])
        put_result(attend(q[:count], k[:count], v[:count], out[:count])(layer), out[:count])
        out[count:].zero_()
        return out

    return run
