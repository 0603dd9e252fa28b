"""Products by FP8 weights with a scale for each block, by Triton. Imported only where Triton is.

A program has a tile of outputs. It multiplies 128 channels at a time in FP8, and scales that sum, in single precision,
by the scales of its rows and of the weight's block.
"""

import triton
import triton.language as tl
from torch import Tensor

CHANNELS = 128
"""Of a block, and of one step."""
FEW_ROWS, MANY_ROWS = 16, 64
"""Rows of a tile: what the hardware multiplies at least, and for prefill."""
NARROW, WIDE = 32, 128
"""Outputs of a tile: few, so that one row's product has programs for every multiprocessor; and many."""


@triton.jit
def _block_product(
    x, x_scale, weight, scale, out, rows, inputs, outputs, groups, rows_of_a_scale: tl.constexpr,
    tile_rows: tl.constexpr, tile_outputs: tl.constexpr, channels: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * tile_outputs + tl.arange(0, tile_outputs)
    row = tl.program_id(1) * tile_rows + tl.arange(0, tile_rows)
    here, there = row < rows, at < outputs
    sums = tl.zeros((tile_rows, tile_outputs), tl.float32)
    for group in range(0, groups):
        k = group * channels + tl.arange(0, channels)
        inside = k < inputs
        own = tl.load(x + row[:, None].to(tl.int64) * inputs + k[None, :], here[:, None] & inside[None, :], other=0.0)
        cells = weight + at[None, :].to(tl.int64) * inputs + k[:, None]
        matrix = tl.load(cells, there[None, :] & inside[:, None], other=0.0)
        of_rows = tl.load(x_scale + row * groups + group, here, other=0.0)
        of_block = tl.load(scale + (at // rows_of_a_scale) * groups + group, there, other=0.0)
        sums += tl.dot(own, matrix) * of_rows[:, None] * of_block[None, :]
    places = out + row[:, None].to(tl.int64) * outputs + at[None, :]
    tl.store(places, sums.to(out.dtype.element_ty), here[:, None] & there[None, :])


def block_product_into(
    x: Tensor, x_scale: Tensor, weight: Tensor, scale: Tensor, rows_of_a_scale: int, out: Tensor
) -> Tensor:
    """x [rows, in] · weight [out, in]ᵀ into `out` [rows, out], all contiguous. Scales are of rows [rows, groups] and of
    weights [⌈out / rows_of_a_scale⌉, groups]; a group is 128 channels."""
    (outputs, inputs), rows = weight.shape, x.shape[0]
    few = rows <= FEW_ROWS
    tile_rows, tile_outputs = (FEW_ROWS, NARROW) if few else (MANY_ROWS, WIDE)
    grid = (triton.cdiv(outputs, tile_outputs), triton.cdiv(rows, tile_rows))
    _block_product[grid](
        x, x_scale.contiguous(), weight, scale, out, rows, inputs, outputs, scale.shape[1], rows_of_a_scale,
        tile_rows, tile_outputs, CHANNELS, num_warps=4, num_stages=4 if few else 3,
    )  # fmt: skip
    return out
