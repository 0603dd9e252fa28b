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

from graphpod_runtime.distributed.words_triton import KINDS, NOTHING, half, word

PLACES = 3
WORDS = 512
"""Of 32 bits, that a program has."""


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
        low = half(sent, kind) + half(came, kind)
        total = word(low, half(sent >> 16, kind) + half(came >> 16, kind), kind)
    else:
        total = (sent.to(tl.float32, bitcast=True) + came.to(tl.float32, bitcast=True)).to(tl.int32, bitcast=True)
    tl.store(out + at, total, there)
    tl.store(turns + part, (turn + 1) % places)


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
