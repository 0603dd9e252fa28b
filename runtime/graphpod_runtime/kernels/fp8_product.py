"""x · weightᵀ of a weight in FP8 (e4m3), for activations that are rounded to FP8 first.

A row of activations is divided by a scale of its own, so no row depends on the others of its batch, nor on padding. The
rounding is plain tensor code: a compiler fuses it with what made the activations. The products are operators of their
own on a GPU. On a CPU the same numbers are multiplied in 32 bits.
"""

from functools import cache
from importlib.util import find_spec

import torch
import torch.nn.functional as functional
from torch import Tensor

FP8 = torch.float8_e4m3fn
LARGEST = 448.0
"""What e4m3 can hold."""
LEAST_SCALE = 2.0**-100
"""Of a row of zeros, and of rows that round to zeros."""
BLOCK = 128
"""Rows and columns that share a scale, in weights by blocks."""
MULTIPLE = 16
"""Of both sizes of a weight that torch's product takes."""
FEW_ROWS = 1
"""Up to so many rows of activations our own kernel for vectors is the fastest."""
MANY_ROWS, ALIGNED = 65, 4
"""From so many rows on torch's product by blocks is; below, our own kernel for tiles. torch's takes a multiple of
ALIGNED rows, and of groups of channels: scales lie in stretches of 16 bytes."""

TRITON = find_spec("triton") is not None

torch.library.define(
    "graphpod::fp8_product", "(Tensor x, Tensor x_scale, Tensor weight, Tensor scale, ScalarType dtype) -> Tensor"
)
torch.library.define(
    "graphpod::fp8_block_product", "(Tensor x, Tensor x_scale, Tensor weight, Tensor scale, ScalarType dtype) -> Tensor"
)


def row_product(x: Tensor, weight: Tensor, scale: Tensor, given: Tensor | None, bias: Tensor | None) -> Tensor:
    """x [rows, in] by `weight` [out, in] with a `scale` for each output [out] -> [rows, out], + bias [out]. `given` [1]
    is the scale of all activations; None: each row has its own.
    """
    rounded, x_scale = rounded_rows(x, given)
    if x.is_cuda:
        result: Tensor = torch.ops.graphpod.fp8_product(rounded, x_scale, weight, scale, x.dtype)
    else:
        result = _row_twin(rounded, x_scale, weight, scale, x.dtype)
    return result if bias is None else result + bias


def block_product(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    """x [rows, in] by `weight` [out, in] with a scale for each block -> [rows, out], + bias [out]. `scale` is
    [⌈out / 128⌉, ⌈in / 128⌉], or [out, ⌈in / 128⌉] where blocks of fused weights do not meet."""
    rounded, x_scale = rounded_groups(x)
    if x.is_cuda:
        result: Tensor = torch.ops.graphpod.fp8_block_product(rounded, x_scale, weight, scale, x.dtype)
    else:
        result = _block_twin(rounded, x_scale, weight, scale, x.dtype)
    return result if bias is None else result + bias


def rounded_rows(x: Tensor, given: Tensor | None) -> tuple[Tensor, Tensor]:
    """x [rows, in] in FP8, and the scale [rows, 1] that it was divided by."""
    wide = x.float()
    if given is None:
        scale = (wide.abs().amax(dim=-1, keepdim=True) / LARGEST).clamp(min=LEAST_SCALE)
    else:
        scale = given.expand(x.shape[0], 1).contiguous()
    return (wide / scale).clamp(-LARGEST, LARGEST).to(FP8), scale


def rounded_groups(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [rows, in] in FP8, and the scales [rows, ⌈in / 128⌉] that each 128 channels of it were divided by."""
    rows, width = x.shape
    groups = -(-width // BLOCK)
    wide = x.float()
    if width % BLOCK:
        wide = functional.pad(wide, (0, groups * BLOCK - width))
    wide = wide.view(rows, groups, BLOCK)
    scale = (wide.abs().amax(dim=-1, keepdim=True) / LARGEST).clamp(min=LEAST_SCALE)
    rounded = (wide / scale).clamp(-LARGEST, LARGEST).view(rows, groups * BLOCK)[:, :width]
    return rounded.to(FP8).contiguous(), scale.view(rows, groups)


def rows_of_a_scale(weight: Tensor, scale: Tensor) -> int:
    """How many rows of a weight by blocks share a row of scales."""
    return BLOCK if scale.shape[0] == -(-weight.shape[0] // BLOCK) else 1


def whole_block_scales(weight: Tensor, scale: Tensor) -> Tensor:
    """The scale of every element of a weight by blocks: [out, in]."""
    outputs, inputs = weight.shape
    by_row = scale if rows_of_a_scale(weight, scale) == 1 else scale.repeat_interleave(BLOCK, 0)[:outputs]
    return by_row.repeat_interleave(BLOCK, 1)[:, :inputs]


def _row_twin(x: Tensor, x_scale: Tensor, weight: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    return (functional.linear(x.float(), weight.float()) * x_scale * scale).to(dtype)


def _block_twin(x: Tensor, x_scale: Tensor, weight: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    wide = x.float() * x_scale.repeat_interleave(BLOCK, 1)[:, : x.shape[1]]
    return functional.linear(wide, weight.float() * whole_block_scales(weight, scale)).to(dtype)


@torch.library.impl("graphpod::fp8_product", "cuda")
def _row_product(x: Tensor, x_scale: Tensor, weight: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    if TRITON and x.shape[0] <= FEW_ROWS:
        return _vector_product(x, x_scale, weight, scale, None, dtype)
    if any(size % MULTIPLE for size in weight.shape):
        return _row_twin(x, x_scale, weight, scale, dtype)
    if dtype is torch.bfloat16:  # the only type of a result that torch scales by rows
        return torch._scaled_mm(
            x, weight.t(), scale_a=x_scale, scale_b=scale[None, :], out_dtype=dtype, use_fast_accum=True
        )
    one = torch.ones((), device=x.device)
    product = torch._scaled_mm(x, weight.t(), scale_a=one, scale_b=one, out_dtype=torch.float32)
    return (product * x_scale * scale).to(dtype)


@cache
def _multiplies_blocks(device: torch.device) -> bool:
    """Whether torch does: cuBLAS from CUDA 12.9 on, on Hopper alone."""
    found = tuple(int(part) for part in (torch.version.cuda or "0").split("."))
    return found >= (12, 9) and torch.cuda.get_device_capability(device) == (9, 0)


@torch.library.impl("graphpod::fp8_block_product", "cuda")
def _block_product(x: Tensor, x_scale: Tensor, weight: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    together, rows = rows_of_a_scale(weight, scale), x.shape[0]
    (outputs, inputs), many = weight.shape, rows >= MANY_ROWS and rows % ALIGNED == 0
    whole = together == BLOCK and outputs % BLOCK == 0 and inputs % (ALIGNED * BLOCK) == 0
    if whole and many and dtype is torch.bfloat16 and _multiplies_blocks(x.device):
        by_columns = x_scale.t().contiguous().t()
        return torch._scaled_mm(x, weight.t(), scale_a=by_columns, scale_b=scale.t(), out_dtype=dtype)
    if not TRITON:
        return _block_twin(x, x_scale, weight, scale, dtype)
    if rows <= FEW_ROWS:
        return _vector_product(x, x_scale, weight, scale, together, dtype)
    from graphpod_runtime.kernels.fp8_blocks_triton import block_product_into

    out = torch.empty(x.shape[0], weight.shape[0], dtype=dtype, device=x.device)
    return block_product_into(x, x_scale, weight, scale, together, out)


def _vector_product(
    x: Tensor, x_scale: Tensor, weight: Tensor, scale: Tensor, rows_of_a_scale: int | None, dtype: torch.dtype
) -> Tensor:
    from graphpod_runtime.kernels.fp8_vector_triton import vector_product_into

    out = torch.empty(x.shape[0], weight.shape[0], dtype=dtype, device=x.device)
    return vector_product_into(x, x_scale, weight, scale, rows_of_a_scale, out)


@torch.library.register_fake("graphpod::fp8_product")
@torch.library.register_fake("graphpod::fp8_block_product")
def _shape(x: Tensor, x_scale: Tensor, weight: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0], dtype=dtype)
