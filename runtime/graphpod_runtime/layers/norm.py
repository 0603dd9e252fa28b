"""Root-mean-square normalisation."""

import torch
import torch.nn.functional as functional
from torch import Tensor, nn


class RmsNorm(nn.Module):
    """x / sqrt(mean(x²) + eps) · weight over the last dimension, computed in float32."""

    def __init__(self, width: int, eps: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, dtype=dtype), requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.weight.shape, self.weight, self.eps)
