"""x · weightᵀ where each row has the matrix of its expert: torch's own product, on CPUs.

On a GPU torch has it for bfloat16 on some, and reads the numbers of rows on the host elsewhere (`GroupedBlas.cpp` of
torch 2.13), which no graph can hold. There `expert_rows.py` has kernels of ours, and `plain_experts.py` a form without
rows by experts.
"""

import torch
import torch.nn.functional as functional
from torch import Tensor

ALIGNED = 16
"""Bytes that a row of a matrix must be a multiple of."""

torch.library.define("graphpod::grouped_product", "(Tensor x, Tensor weight, Tensor ends) -> Tensor")
"""An op of its own, which the compiler does not look into: it is torch's product, whatever the compiler has for it."""


def grouped_product(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """x [rows, in] by weight [experts, out, in] -> [rows, out]; rows [ends[e - 1], ends[e]) by matrix e. `ends`
    [experts], int32, do not fall. Rows behind the last one have any content. Only where `is_built` says so."""
    result: Tensor = torch.ops.graphpod.grouped_product(x, weight, ends)
    return result


def is_built(x: Tensor, weight: Tensor) -> bool:
    """Whether torch computes it here."""
    sizes = (weight.shape[1] * x.element_size(), weight.shape[2] * x.element_size())
    return x.device.type == "cpu" and not any(size % ALIGNED for size in sizes)


@torch.library.impl("graphpod::grouped_product", "CompositeExplicitAutograd")
def _product(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    return functional.grouped_mm(x, weight.transpose(1, 2), offs=ends)


@torch.library.register_fake("graphpod::grouped_product")
def _shape(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[1])
