"""x · weightᵀ + bias, for as few rows as decode has.

cuBLAS cuts a product into tiles of outputs. Of one row, and of a few rows and a narrow weight, there are too few tiles
for the whole device: on an H200 it takes 12.6 µs for one row by [1024, 2048], whose weight is read in 1. For those
products our own kernel has a program for every two outputs.
"""

from importlib.util import find_spec

import torch
import torch.nn.functional as functional
from torch import Tensor

FEW_ROWS, NARROW = 4, 2048
"""Up to FEW_ROWS rows our kernel is faster where the weight has at most NARROW outputs; for one row, always."""

TRITON = find_spec("triton") is not None
"""Whether it is installed; torch's build for CPUs comes without."""

torch.library.define("graphpod::product", "(Tensor x, Tensor weight, Tensor? bias) -> Tensor")
"""An op of its own: the compiler is not to look inside, for it would choose once for all numbers of rows."""


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [rows, in] · weight [out, in]ᵀ + bias [out] -> [rows, out]."""
    if x.is_cuda and TRITON:
        result: Tensor = torch.ops.graphpod.product(x, weight, bias)
        return result
    return functional.linear(x, weight, bias)


def add_product(x: Tensor, rows: Tensor, weight: Tensor) -> Tensor:
    """`x` [rows, out], plus rows [rows, in] · weight [out, in]ᵀ in place."""
    if x.is_cuda and x.is_contiguous() and _ours(rows, weight):
        from graphpod_runtime.kernels.matrix_product_triton import product_into

        return product_into(rows, weight, x, x)
    return x.addmm_(rows, weight.t())


def _ours(x: Tensor, weight: Tensor) -> bool:
    rows = x.shape[0]
    few = rows == 1 or (rows <= FEW_ROWS and weight.shape[0] <= NARROW)
    return TRITON and few and x.stride(1) == 1 and weight.is_contiguous()


@torch.library.impl("graphpod::product", "cuda")
def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if not _ours(x, weight):
        return functional.linear(x, weight, bias)
    from graphpod_runtime.kernels.matrix_product_triton import product_into

    return product_into(x, weight, bias, x.new_empty(x.shape[0], weight.shape[0]))


@torch.library.register_fake("graphpod::product")
def _shape(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])
