"""A matrix of a layer and its bias."""

import torch
from torch import Tensor, nn

from graphpod_policy.model.fp8_scheme import Fp8Scheme
from graphpod_runtime.models.weights.weight import Weight, weight_of


class Linear(nn.Module):
    """The weight [out, in] and perhaps the bias of x · weightᵀ + bias; may hold several fused projections, of `parts`
    outputs each."""

    def __init__(
        self, inputs: int, parts: tuple[int, ...], dtype: torch.dtype, scheme: Fp8Scheme | None, *, bias: bool
    ) -> None:
        super().__init__()
        self.weight: Weight = weight_of(inputs, parts, dtype, scheme)
        self.bias = nn.Parameter(torch.empty(sum(parts), dtype=dtype), requires_grad=False) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return self.weight.matmul(x, self.bias)
