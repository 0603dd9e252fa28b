"""The sum of two GPUs' parts, added to the residual, and the next norm, in one launch. Imported only where Triton is.

As three launches they take as long as an attention of decode does, and two of them only wait for memory to answer. A
program has a row: it sends and takes words as `pushed_sum_triton.py` does, and then has all that a norm of the row
needs.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphpod_runtime.distributed.pushed_sum_triton import PLACES
from graphpod_runtime.distributed.sum_ways import ROW_WORDS
from graphpod_runtime.distributed.words_triton import KINDS, NOTHING, half, word

WARPS = 16


class Memory(NamedTuple):
    """What one GPU needs."""

    own: Tensor
    """[PLACES, ROWS · ROW_WORDS], int32, full of NOTHING before the first turn: the other GPU writes here."""
    other: Tensor
    """That of the other GPU."""
    turns: Tensor
    """[ROWS], int32, zeros before the first turn: that of each row."""


@triton.jit
def _added(before, mine, theirs, kind: tl.constexpr):
    """Rounded where torch rounds: both sums are operators there."""
    total = (half(mine, kind) + half(theirs, kind)).to(kind).to(tl.float32)
    return (half(before, kind) + total).to(kind).to(tl.float32)


@triton.jit
def _add(
    part, x, read, weight, own, other, turns, size, place, eps, kind: tl.constexpr, norms: tl.constexpr,
    nothing: tl.constexpr, places: tl.constexpr, words: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    turn = tl.load(turns + row)
    lanes = tl.arange(0, block)
    there = lanes < size
    at = row * size + lanes
    slot = row * words + lanes
    sent = tl.load(part + at, there, other=0)
    sent = tl.where(sent == nothing, 0, sent)
    tl.store(other + turn * place + slot, sent, there)
    # All words of the row, not only those of this width: a row of another width may have had the turn before.
    cleared = own + (turn + places - 1) % places * place + row * words + tl.arange(0, words)
    tl.store(cleared, tl.full((words,), nothing, tl.int32))
    before = tl.load(x + at, there, other=0)
    came = tl.load(own + turn * place + slot, there, other=0, volatile=True)
    while tl.max((came == nothing).to(tl.int32), 0) != 0:
        came = tl.load(own + turn * place + slot, there, other=0, volatile=True)
    low = _added(before, sent, came, kind)
    high = _added(before >> 16, sent >> 16, came >> 16, kind)
    tl.store(x + at, word(low, high, kind), there)
    if norms:
        scale = tl.rsqrt(tl.sum(low * low + high * high, 0) / (2 * size) + eps)
        low *= scale * tl.load(weight + 2 * lanes, there, other=0.0).to(tl.float32)
        high *= scale * tl.load(weight + 2 * lanes + 1, there, other=0.0).to(tl.float32)
        tl.store(read + at, word(low, high, kind), there)
    tl.store(turns + row, (turn + 1) % places)


def add_into(part: Tensor, x: Tensor, norm: tuple[Tensor, float] | None, memory: Memory) -> Tensor:
    """Adds to `x` in place the sum of what both GPUs have in the place of `part`. Returns what `norm`, the weight
    [width] of an RMS norm and its epsilon, makes of `x` then, or `x` without one.

    All [rows, width] are contiguous and of one 16-bit type, within the bounds of `sum_ways.adds_at_once`.
    """
    rows, size = x.shape[0], x.shape[1] // 2
    read = torch.empty_like(x) if norm else x
    weight, eps = norm or (part, 0.0)
    _add[(rows,)](
        *(each.view(torch.int32) for each in (part, x, read)), weight, *memory, size, memory.own.shape[1], eps,
        KINDS[x.dtype], norm is not None, NOTHING, PLACES, ROW_WORDS, triton.next_power_of_2(size), num_warps=WARPS,
    )  # fmt: skip
    return read
