"""`mask_rows` by Triton, in one launch over the logits. Imported only where Triton is."""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096
"""Tokens of one program."""


@triton.jit(do_not_specialize=["words"])
def _mask(logits, row_stride, rows, bits, words, vocab, out, block: tl.constexpr):
    masked, part = tl.program_id(0), tl.program_id(1)
    row = tl.load(rows + masked)
    tokens = part * block + tl.arange(0, block)
    inside = tokens < vocab
    word = tl.load(bits + masked.to(tl.int64) * words + tokens // 32, mask=inside, other=0)
    allowed = ((word >> (tokens % 32)) & 1) != 0
    value = tl.load(logits + row * row_stride + tokens, mask=inside & allowed, other=float("-inf"))
    tl.store(out + row * vocab + tokens, value, mask=inside)


def mask_rows(logits: Tensor, rows: Tensor, bits: Tensor) -> Tensor:
    """Is a MaskRows, for logits on a CUDA device whose rows lie together."""
    out = logits.clone(memory_format=torch.contiguous_format)
    vocab = logits.shape[1]
    grid = (rows.shape[0], triton.cdiv(vocab, BLOCK))
    _mask[grid](logits, logits.stride(0), rows, bits, bits.shape[1], vocab, out, block=BLOCK)
    return out
