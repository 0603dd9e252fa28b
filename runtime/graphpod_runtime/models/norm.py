"""Root-mean-square normalisation."""

import torch
import torch.nn.functional as functional
from torch import Tensor, nn


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x²) + eps) · weight over the last dimension, in x's dtype.

    A float32 weight is applied before the result is rounded to x's dtype, as Gemma has it; one of x's dtype as torch
    applies it.
    """
    return functional.rms_norm(x.to(weight.dtype), weight.shape, weight, eps).to(x.dtype)


class RmsNorm(nn.Module):
    """`rms_norm` with a weight of `dtype`."""

    def __init__(self, width: int, eps: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, dtype=dtype), requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)
