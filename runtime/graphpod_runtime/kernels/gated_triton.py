"""The gate of an MLP in one launch. Imported only where Triton is."""

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024
"""Results of a program."""


@triton.jit
def _gate(made, out, width, gelu: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * block + tl.arange(0, block)
    there = at < width
    gate = tl.load(made + row * 2 * width + at, there, other=0.0).to(tl.float32)
    up = tl.load(made + row * 2 * width + width + at, there, other=0.0).to(tl.float32)
    inner = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate) if gelu else gate
    # Rounded where torch rounds: the activation and its product are two operators there.
    activated = (gate * tl.sigmoid(inner)).to(out.dtype.element_ty).to(tl.float32)
    tl.store(out + row * width + at, (activated * up).to(out.dtype.element_ty), there)


def gated(made: Tensor, gelu: bool) -> Tensor:
    """act(gate) · up of `made` [rows, 2 · width], contiguous, gate in front of up -> [rows, width]. The activation is
    SiLU, or GELU by tanh."""
    rows, width = made.shape[0], made.shape[1] // 2
    out = made.new_empty(rows, width)
    _gate[(rows, triton.cdiv(width, BLOCK))](made, out, width, gelu, BLOCK, num_warps=4)
    return out
