"""One matrix of a layer."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from graphpod_policy.model.fp8_scheme import Fp8Scheme, Granularity
from graphpod_runtime.models.tensor_destination import WHOLE, Cut, Destination, Target
from graphpod_runtime.models.weights.fp8 import Fp8BlockWeight, Fp8Weight
from graphpod_runtime.models.weights.product import Form, Tensors, matmul


class Weight(Protocol):
    """A matrix [out, in] in some form. A model asks for its product and for nothing else."""

    @property
    def form(self) -> Form: ...

    def tensors(self) -> Tensors:
        """As `product.matmul` takes them; their addresses never change."""

    def matmul(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x [rows, in] -> [rows, out]"""

    def destinations(self, first: int, rows: int, cut: Cut = WHOLE) -> Mapping[str, Destination]:
        """Where the tensors of a checkpoint, or their part `cut`, go that make up rows [first, first + rows): by what
        their names have behind the module's."""

    def fill(self, matrix: Tensor) -> None:
        """Takes `matrix` [out, in], of any element type, stored as its form stores it."""


class PlainWeight(nn.Module):
    """A matrix of the activations' type; may hold several fused projections."""

    form = Form.Plain

    def __init__(self, inputs: int, outputs: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.empty(outputs, inputs, dtype=dtype), requires_grad=False)

    def tensors(self) -> Tensors:
        return (self.matrix,)

    def matmul(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        return matmul(self.form, x, self.tensors(), bias)

    def destinations(self, first: int, rows: int, cut: Cut = WHOLE) -> Mapping[str, Destination]:
        return {"weight": Target(self.matrix, first, rows, cut=cut)}

    def fill(self, matrix: Tensor) -> None:
        self.matrix.data.copy_(matrix)


def weight_of(inputs: int, parts: Sequence[int], dtype: torch.dtype, scheme: Fp8Scheme | None) -> Weight:
    """An unset weight, of `parts` rows each fused; without a scheme one of `dtype`."""
    if scheme is None:
        return PlainWeight(inputs, sum(parts), dtype)
    if scheme.granularity is Granularity.Blocks:
        return Fp8BlockWeight(inputs, parts, scheme)
    return Fp8Weight(inputs, sum(parts), scheme)
