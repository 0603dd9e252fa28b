"""The sum of two GPUs' parts in one launch without a barrier. Imported only where Triton is.

Each GPU writes its part into the other's memory, and waits until its own memory holds the other's: where nothing has
come yet stands a word that is never sent. A turn has one of three places, in a circle, and clears the one before: the
other GPU comes to it again only when it has had this GPU's next part, so after the clearing. Each program has its own
words and counts its own turns, which is why a graph can hold it, whatever ran in between.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

PLACES = 3
WORDS = 512
"""Of 32 bits, that a program has."""
NOTHING = -0x7FFF8000
"""Two negative zeros in 16 bits, or a number of single precision next to zero: zeros are sent in its place."""


@triton.jit
def _half(bits, kind: tl.constexpr):
    return bits.to(tl.int16).to(kind, bitcast=True).to(tl.float32)


@triton.jit
def _word(low, high, kind: tl.constexpr):
    low = low.to(kind).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
    return low | (high.to(kind).to(tl.int16, bitcast=True).to(tl.int32) << 16)


@triton.jit
def _push(
    x, out, own, other, turns, size, place, kind: tl.constexpr, halves: tl.constexpr, nothing: tl.constexpr,
    places: tl.constexpr, words: tl.constexpr,
):  # fmt: skip
    part = tl.program_id(0)
    turn = tl.load(turns + part)
    at = part * words + tl.arange(0, words)
    there = at < size
    sent = tl.load(x + at, there, other=0)
    sent = tl.where(sent == nothing, 0, sent)
    tl.store(other + turn * place + at, sent, there)
    tl.store(own + (turn + places - 1) % places * place + at, tl.full((words,), nothing, tl.int32))
    came = tl.load(own + turn * place + at, there, other=0, volatile=True)
    while tl.max((came == nothing).to(tl.int32), 0) != 0:
        came = tl.load(own + turn * place + at, there, other=0, volatile=True)
    if halves:
        low = _half(sent, kind) + _half(came, kind)
        total = _word(low, _half(sent >> 16, kind) + _half(came >> 16, kind), kind)
    else:
        total = (sent.to(tl.float32, bitcast=True) + came.to(tl.float32, bitcast=True)).to(tl.int32, bitcast=True)
    tl.store(out + at, total, there)
    tl.store(turns + part, (turn + 1) % places)


KINDS = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}


def push_into(x: Tensor, out: Tensor, own: Tensor, other: Tensor, turns: Tensor) -> Tensor:
    """The sum of what both GPUs have in the place of `x` into `out`, both contiguous and of whole words.

    `own` and `other` [PLACES, words], int32, are this GPU's and the other's memory, full of NOTHING before the first
    turn. `turns` [programs], int32, began at 0; a program is one of WORDS words.
    """
    flat, words = x.view(-1).view(torch.int32), x.nbytes // 4
    _push[(triton.cdiv(words, WORDS),)](
        flat, out.view(-1).view(torch.int32), own, other, turns, words, own.shape[1], KINDS[x.dtype],
        x.element_size() == 2, NOTHING, PLACES, WORDS, num_warps=4,
    )  # fmt: skip
    return out
