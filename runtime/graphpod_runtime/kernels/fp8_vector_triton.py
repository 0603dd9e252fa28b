"""Products of a row or a few by FP8 weights, by Triton. Imported only where Triton is.

As of plain weights: a program has an output or a few of one row and reads its rows of the weight once, in whole
stretches; sums are in single precision. Scales of blocks are multiplied in on the way, those of rows at the end.
"""

import triton
import triton.language as tl
from torch import Tensor

from graphpod_runtime.kernels.fp8_blocks_triton import CHANNELS

OUTPUTS, BLOCK, WARPS = 1, 2048, 4
"""Of a program, inputs of one step, and its warps: the fastest of a search on an H100, over the weights of an 8B model.
"""


@triton.jit
def _product(
    x, x_scale, weight, scale, out, inputs, outputs, groups, rows_of_a_scale, by_blocks: tl.constexpr,
    channels: tl.constexpr, block: tl.constexpr, each: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * each + tl.arange(0, each)
    row = tl.program_id(1)
    there = at < outputs
    sums = tl.zeros((each, block), tl.float32)
    total = tl.zeros((each,), tl.float32)
    for first in range(0, inputs, block):
        k = first + tl.arange(0, block)
        inside = k < inputs
        own = tl.load(x + row * inputs + k, inside, other=0.0).to(tl.float32)
        cells = weight + at[:, None].to(tl.int64) * inputs + k[None, :]
        products = own[None, :] * tl.load(cells, there[:, None] & inside[None, :], other=0.0).to(tl.float32)
        if by_blocks:
            group = first // channels + tl.arange(0, block // channels)
            known = group < groups
            of_blocks = scale + (at // rows_of_a_scale)[:, None] * groups + group[None, :]
            scales = tl.load(of_blocks, there[:, None] & known[None, :], other=0.0)
            scales *= tl.load(x_scale + row * groups + group, known, other=0.0)[None, :]
            total += tl.sum(tl.sum(tl.reshape(products, (each, block // channels, channels)), 2) * scales, 1)
        else:
            sums += products
    if not by_blocks:
        total = tl.sum(sums, 1) * tl.load(x_scale + row) * tl.load(scale + at, there, other=0.0)
    tl.store(out + row * outputs + at, total.to(out.dtype.element_ty), there)


def vector_product_into(
    x: Tensor, x_scale: Tensor, weight: Tensor, scale: Tensor, rows_of_a_scale: int | None, out: Tensor
) -> Tensor:
    """x [rows, in] · weight [out, in]ᵀ into `out` [rows, out], all contiguous. `rows_of_a_scale` is of weights by
    blocks, with scales as `block_product_into` has them; None: a scale of each row of x and of each output."""
    (outputs, inputs), rows = weight.shape, x.shape[0]
    groups = 1 if rows_of_a_scale is None else scale.shape[1]
    _product[(triton.cdiv(outputs, OUTPUTS), rows)](
        x, x_scale.contiguous(), weight, scale, out, inputs, outputs, groups, rows_of_a_scale or 1,
        rows_of_a_scale is not None, CHANNELS, BLOCK, OUTPUTS, num_warps=WARPS,
    )  # fmt: skip
    return out
