"""Products of a few rows by Triton. Imported only where Triton is.

A program has OUTPUTS outputs of one row and reads its rows of the weight once, in whole stretches; sums are in single
precision.
"""

import triton
import triton.language as tl
from torch import Tensor

OUTPUTS, BLOCK = 2, 1024
"""Of a program, and inputs of one step: the fastest of a search on an H200, over the weights of 0.6B and 8B models."""


@triton.jit
def _product(
    x, weight, add, out, inputs, outputs, x_stride, add_stride, adds: tl.constexpr, block: tl.constexpr,
    each: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * each + tl.arange(0, each)
    row = tl.program_id(1)
    there = at < outputs
    sums = tl.zeros((each, block), tl.float32)
    for first in range(0, inputs, block):
        k = first + tl.arange(0, block)
        inside = k < inputs
        own = tl.load(x + row * x_stride + k, inside, other=0.0).to(tl.float32)
        cells = weight + at[:, None].to(tl.int64) * inputs + k[None, :]
        sums += own[None, :] * tl.load(cells, there[:, None] & inside[None, :], other=0.0).to(tl.float32)
    total = tl.sum(sums, 1)
    if adds:
        total += tl.load(add + row * add_stride + at, there, other=0.0).to(tl.float32)
    tl.store(out + row * outputs + at, total.to(out.dtype.element_ty), there)


def product_into(x: Tensor, weight: Tensor, add: Tensor | None, out: Tensor) -> Tensor:
    """x [rows, in] · weight [out, in]ᵀ + add into `out` [rows, out], which may be `add` itself. `add` is [rows, out] or
    [out]; weight and out are contiguous."""
    (outputs, inputs), rows = weight.shape, x.shape[0]
    add_stride = 0 if add is None or add.dim() == 1 else add.stride(0)
    _product[(triton.cdiv(outputs, OUTPUTS), rows)](
        x, weight, add, out, inputs, outputs, x.stride(0), add_stride, add is not None, BLOCK, OUTPUTS, num_warps=4
    )
    return out
