"""The sum of two GPUs' parts of a large message, piece by piece in one launch. Imported only where Triton is.

A program writes a piece of its part into the other GPU's memory, raises the count there, waits until its own count
shows that the other's piece has come, adds both, and goes on with the next piece. So a link carries each byte once in
each direction, which is the least that two GPUs can send. Many programs run at a time: while some wait, others send.

Memory of each program is two slots, used in turn. Piece n goes where piece n - 2 was. The other GPU has read that one:
it sent its piece n - 1 afterwards, and this program waited for it. This holds from one launch to the next, too, because
each program goes on with its own count. So a graph can hold a launch, whatever ran in between.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphpod_runtime.distributed.words_triton import KINDS

SLOTS = 2
STRIDE = 32
"""Counts, of 32 bits, from one program's to the next: each has a line of the cache for itself."""


class Shape(NamedTuple):
    """How a message is divided. Both GPUs use the same one."""

    programs: int = 512
    """At most; each takes every so many pieces. All of them fit onto an H100 at a time."""
    piece: int = 8192
    """Bytes."""
    warps: int = 4

    @property
    def bytes(self) -> int:
        """Of memory that the other GPU sees."""
        return self.programs * (SLOTS * self.piece + STRIDE * 4)


class Memory(NamedTuple):
    """What one GPU needs, all of it zero before the first launch."""

    own: Tensor
    """[bytes], uint8: the other GPU writes here."""
    other: Tensor
    """[bytes], uint8: that of the other GPU."""
    counts: Tensor
    """[programs], int32: the pieces that each program has sent."""


@triton.jit
def _exchange(
    x, out, own, other, own_came, other_came, counts, size, kind: tl.constexpr, piece: tl.constexpr,
    stride: tl.constexpr,
):  # fmt: skip
    part = tl.program_id(0)
    count = tl.load(counts + part)
    lanes = tl.arange(0, piece)
    for start in range(part * piece, size, tl.num_programs(0) * piece):
        at = start + lanes
        there = at < size
        slot = (part * 2 + (count & 1)) * piece + lanes
        mine = tl.load(x + at, there, other=0)
        tl.store(other + slot, mine, there)
        count += 1
        # All threads have written before one of them publishes what they wrote.
        tl.debug_barrier()
        tl.atomic_xchg(other_came + part * stride, count, sem="release", scope="sys")
        # The other GPU may be one piece ahead. The difference survives an overflow of the counts.
        while tl.atomic_add(own_came + part * stride, 0, sem="acquire", scope="sys") - count < 0:
            pass
        came = tl.load(own + slot, there, other=0, volatile=True)
        tl.store(out + at, (mine.to(tl.float32) + came.to(tl.float32)).to(kind), there)
    tl.store(counts + part, count)


def came(memory: Tensor, shape: Shape) -> Tensor:
    """The part of `memory`, own or other, that counts the pieces which have come, each STRIDE from the next."""
    return memory[shape.programs * SLOTS * shape.piece :].view(torch.int32)


def exchange_into(x: Tensor, out: Tensor, memory: Memory, shape: Shape) -> Tensor:
    """The sum of what both GPUs have in the place of `x` into `out`, both contiguous, of any size."""
    slots = shape.programs * SLOTS * shape.piece
    own, other = (each[:slots].view(x.dtype) for each in memory[:2])
    own_came, other_came = (came(each, shape) for each in memory[:2])
    programs = min(shape.programs, triton.cdiv(x.nbytes, shape.piece))
    _exchange[(programs,)](
        x, out, own, other, own_came, other_came, memory.counts, x.numel(), KINDS[x.dtype],
        shape.piece // x.element_size(), STRIDE, num_warps=shape.warps,
    )  # fmt: skip
    return out
