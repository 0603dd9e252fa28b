"""Words of 32 bits that two GPUs write to each other: two numbers of 16 bits, or one of single precision. Imported only
where Triton is.
"""

import torch
import triton
import triton.language as tl

NOTHING = -0x7FFF8000
"""Where nothing has come yet, and never sent: two negative zeros in 16 bits, or a number of single precision next to
zero. Zeros are sent in its place."""
KINDS = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}


@triton.jit
def half(bits, kind: tl.constexpr):
    """The lower number of a word."""
    return bits.to(tl.int16).to(kind, bitcast=True).to(tl.float32)


@triton.jit
def word(low, high, kind: tl.constexpr):
    """That of two numbers, rounded to `kind`."""
    low = low.to(kind).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
    return low | (high.to(kind).to(tl.int16, bitcast=True).to(tl.int32) << 16)
