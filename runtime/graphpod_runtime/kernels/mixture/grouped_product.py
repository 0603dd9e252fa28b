"""x · weightᵀ where each row has the matrix of its expert, and the numbers of rows are known to the device alone.

Torch has such a product: on GPUs of compute capability 9 and 10 for bfloat16, from CUTLASS, and on CPUs for every type.
Everywhere else it reads the numbers on the host (`GroupedBlas.cpp` of torch 2.13), which no graph can hold; there
`plain_experts.py` has a form without rows by experts.
"""

from functools import cache

import torch
import torch.nn.functional as functional
from torch import Tensor

CAPABLE = (9, 10)
"""Major numbers of compute capabilities whose product torch computes without a read on the host."""
ALIGNED = 16
"""Bytes that a row of a matrix must be a multiple of."""

torch.library.define("graphpod::grouped_product", "(Tensor x, Tensor weight, Tensor ends) -> Tensor")
"""An op of its own, which the compiler does not look into: it is torch's product, whatever the compiler has for it."""


def grouped_product(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """x [rows, in] by weight [experts, out, in] -> [rows, out]; rows [ends[e - 1], ends[e]) by matrix e. `ends`
    [experts], int32, do not fall, and the last one is the number of rows. Only where `is_built` says so."""
    result: Tensor = torch.ops.graphpod.grouped_product(x, weight, ends)
    return result


def is_built(x: Tensor, weight: Tensor) -> bool:
    """Whether torch computes it here without a read on the host, which no graph holds."""
    inputs, outputs = weight.shape[2], weight.shape[1]
    if (inputs * x.element_size()) % ALIGNED or (outputs * x.element_size()) % ALIGNED:
        return False
    return x.device.type == "cpu" or (x.dtype is torch.bfloat16 and _capable(x.device))


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _capable(device: torch.device) -> bool:
    """A compiler takes it as a constant: it does not trace questions to a driver."""
    return _major(device) in CAPABLE


@cache
def _major(device: torch.device) -> int:
    return torch.cuda.get_device_capability(device)[0]


@torch.library.impl("graphpod::grouped_product", "CompositeExplicitAutograd")
def _product(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    return functional.grouped_mm(x, weight.transpose(1, 2), offs=ends)


@torch.library.register_fake("graphpod::grouped_product")
def _shape(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[1])
