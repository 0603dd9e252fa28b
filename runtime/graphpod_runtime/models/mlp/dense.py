"""One MLP."""

import torch
from torch import nn

from graphpod_policy.model.fp8_scheme import PARTS
from graphpod_runtime.base.shapes import ModelShape
from graphpod_runtime.models.weights.linear import Linear
from graphpod_runtime.models.weights.product import Arguments


class DenseMlp(nn.Module):
    """Gate and up, where there is a gate, are one matrix."""

    def __init__(self, shape: ModelShape, layer: int, dtype: torch.dtype) -> None:
        super().__init__()
        gate_up, down = (shape.scheme_of(layer, parts[0]) for parts in PARTS[2:])
        wide = (shape.intermediate,) * (2 if shape.gated else 1)
        self.gate_up = Linear(shape.hidden, wide, dtype, gate_up, bias=shape.mlp_bias)
        self.down = Linear(shape.intermediate, (shape.hidden,), dtype, down, bias=shape.mlp_bias)

    def arguments(self) -> Arguments:
        """Gate and up, their bias, down and its bias, as `After` takes them."""
        return self.gate_up.weight.tensors(), self.gate_up.bias, self.down.weight.tensors(), self.down.bias
