"""x · weightᵀ where each row has the matrix of its expert, and the numbers of rows are known to the device alone.

Torch has such a product: on GPUs of compute capability 9 and 10 for bfloat16, from CUTLASS, and on CPUs for every type.
Everywhere else it reads the numbers on the host, which no graph can hold (`GroupedBlas.cpp` of torch 2.10). There the
rows of few tokens gather the matrices of their experts, and more rows pass every expert.
"""

from functools import cache

import torch
import torch.nn.functional as functional
from torch import Tensor

CAPABLE = (9, 10)
"""Major numbers of compute capabilities whose product torch computes without a read on the host."""
ALIGNED = 16
"""Bytes that a row of a matrix must be a multiple of, for torch's."""
GATHERED = 32 << 20
"""Weights that are copied at most, where rows gather those of their experts."""

torch.library.define("graphpod::grouped_product", "(Tensor x, Tensor weight, Tensor ends) -> Tensor")
"""An op of its own: how it is computed depends on the number of rows, which the compiler leaves open."""


def grouped_product(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """x [rows, in] by weight [experts, out, in] -> [rows, out]; rows [ends[e - 1], ends[e]) by matrix e. `ends`
    [experts], int32, do not fall, and the last one is the number of rows."""
    result: Tensor = torch.ops.graphpod.grouped_product(x, weight, ends)
    return result


def by_torch(x: Tensor, weight: Tensor) -> bool:
    """Whether torch computes it here without a read on the host that a graph would hold."""
    inputs, outputs = weight.shape[2], weight.shape[1]
    if (inputs * x.element_size()) % ALIGNED or (outputs * x.element_size()) % ALIGNED:
        return False
    return x.device.type == "cpu" or (x.dtype is torch.bfloat16 and _capable(x.device))


@cache
def _capable(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device)[0] in CAPABLE


@torch.library.impl("graphpod::grouped_product", "CompositeExplicitAutograd")
def _product(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    if by_torch(x, weight):
        return torch._grouped_mm(x, weight.transpose(1, 2), offs=ends)
    numbers = torch.arange(x.shape[0], device=x.device, dtype=torch.int32)
    return plain_product(x, weight, torch.searchsorted(ends, numbers, right=True))


def plain_product(x: Tensor, weight: Tensor, experts: Tensor) -> Tensor:
    """The same by plain products; `experts` [rows] has the expert of each row."""
    if x.shape[0] * weight[0].numel() <= GATHERED:
        return torch.bmm(weight[experts], x[:, :, None])[:, :, 0]
    result = x.new_zeros(x.shape[0], weight.shape[1])
    for expert in range(weight.shape[0]):
        # Not multiplied by 0: an expert that did not choose a row may overflow.
        result = torch.where((experts == expert)[:, None], functional.linear(x, weight[expert]), result)
    return result


@torch.library.register_fake("graphpod::grouped_product")
def _shape(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[1])
