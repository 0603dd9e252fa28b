"""`mask_rows` by Triton: one launch over the logits, and one over the maxima of their parts. Imported only where Triton
is."""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096
"""Tokens of one program."""


@triton.jit(do_not_specialize=["words"])
def _mask(logits, row_stride, which, bits, words, vocab, out, maxima, firsts, block: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    mask = tl.load(which + row)
    tokens = part * block + tl.arange(0, block)
    inside = tokens < vocab
    word = tl.load(bits + mask.to(tl.int64) * words + tokens // 32, mask=inside & (mask >= 0), other=-1)
    allowed = ((word >> (tokens % 32)) & 1) != 0
    value = tl.load(logits + row * row_stride + tokens, mask=inside & allowed, other=float("-inf"))
    tl.store(out + row * vocab + tokens, value, mask=inside)
    value = value.to(tl.float32)
    at = row * tl.num_programs(1) + part
    tl.store(maxima + at, tl.max(value, 0))
    tl.store(firsts + at, part * block + tl.argmax(value, 0))


@triton.jit
def _choose(maxima, firsts, parts, which, chosen, nothing, out, width: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.arange(0, width)
    value = tl.load(maxima + row * parts + part, mask=part < parts, other=float("-inf"))
    token = tl.load(firsts + row * parts + tl.argmax(value, 0)).to(tl.int64)
    token = tl.where(tl.max(value, 0) == float("-inf"), nothing, token)
    before = tl.load(chosen + row)
    stays = (tl.load(which + row) < 0) | (before < 0)
    tl.store(out + row, tl.where(stays, before, token))


def mask_rows(logits: Tensor, chosen: Tensor, which: Tensor, bits: Tensor, nothing: int) -> tuple[Tensor, Tensor]:
    """Is a MaskRows, for logits on a CUDA device whose rows lie together."""
    rows, vocab = logits.shape
    parts = triton.cdiv(vocab, BLOCK)
    out = torch.empty_like(logits, memory_format=torch.contiguous_format)
    maxima = torch.empty(rows, parts, dtype=torch.float32, device=logits.device)
    firsts = torch.empty(rows, parts, dtype=torch.int32, device=logits.device)
    tokens = torch.empty_like(chosen)
    _mask[rows, parts](logits, logits.stride(0), which, bits, bits.shape[1], vocab, out, maxima, firsts, block=BLOCK)
    _choose[rows,](maxima, firsts, parts, which, chosen, nothing, tokens, width=triton.next_power_of_2(parts))
    return out, tokens
