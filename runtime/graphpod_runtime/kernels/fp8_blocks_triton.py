"""Products by FP8 weights with a scale for each block, by Triton. Imported only where Triton is.

A program has a tile of outputs. It multiplies 128 channels at a time in FP8, and scales that sum, in single precision,
by the scales of its rows and of the weight's block.
"""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

CHANNELS = 128
"""Of a block, and of one step."""


class Tile(NamedTuple):
    """Of a program."""

    rows: int
    outputs: int
    stages: int
    """Steps whose reads are on their way."""


FEW, MORE, MANY = Tile(16, 32, 4), Tile(64, 32, 5), Tile(64, 128, 3)
"""As few rows as the hardware multiplies; rows of one tile, whose outputs are cut so that every multiprocessor has a
program; prefill. The fastest of a search on an H100, over the weights of an 8B model."""


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
    tile = FEW if rows <= FEW.rows else MORE if rows <= MORE.rows else MANY
    grid = (triton.cdiv(outputs, tile.outputs), triton.cdiv(rows, tile.rows))
    _block_product[grid](
        x, x_scale.contiguous(), weight, scale, out, rows, inputs, outputs, scale.shape[1], rows_of_a_scale,
        tile.rows, tile.outputs, CHANNELS, num_warps=4, num_stages=tile.stages,
    )  # fmt: skip
    return out
