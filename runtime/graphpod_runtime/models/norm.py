"""Normalisation of rows and of heads, in every way that families have it."""

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from graphpod_policy.model.architectures import HeadNorm, Norm
from graphpod_runtime.models.parts import rms_norm_of_ranks

NormTensors = tuple[Tensor | None, ...]
"""Weight and, of a norm that may have one, bias."""


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x²) + eps) · weight over the dimensions that `weight` has, in x's dtype.

    A float32 weight is applied before the result is rounded to x's dtype, as Gemma has it; one of x's dtype as torch
    applies it.
    """
    return functional.rms_norm(x.to(weight.dtype), weight.shape, weight, eps).to(x.dtype)


def normalised(kind: Norm, x: Tensor, tensors: NormTensors, eps: float) -> Tensor:
    """`x` [rows, width] by a norm of `kind`."""
    weight = tensors[0]
    assert weight is not None
    if kind in (Norm.Layer, Norm.LayerBias):
        return functional.layer_norm(x, weight.shape, weight, tensors[1] if kind is Norm.LayerBias else None, eps)
    return rms_norm(x, weight, eps)


def normalised_heads(kind: HeadNorm, x: Tensor, weight: Tensor, eps: float, ranks: int = 1) -> Tensor:
    """`x` [rows, heads, width] by a norm of `kind`, where `ranks` have heads."""
    if kind is HeadNorm.All:
        weight = weight.view(x.shape[1:])
        return rms_norm(x, weight, eps) if ranks == 1 else rms_norm_of_ranks(x, weight, eps, ranks)
    if kind is HeadNorm.Own:
        return (functional.layer_norm(x.float(), x.shape[-1:], None, None, eps) * weight.float()).to(x.dtype)
    return rms_norm(x, weight, eps)


class RowNorm(nn.Module):
    """A norm of `kind` over `shape`, for a model of `dtype`."""

    bias: nn.Parameter | None

    def __init__(self, kind: Norm, shape: tuple[int, ...], eps: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.kind, self.eps = kind, eps
        if kind in (Norm.RmsWide, Norm.RmsPlusOne):
            dtype = torch.float32  # applied before rounding
        self.weight = nn.Parameter(torch.empty(shape, dtype=dtype), requires_grad=False)
        biased = kind is Norm.LayerBias
        self.bias = nn.Parameter(torch.empty(shape, dtype=dtype), requires_grad=False) if biased else None

    def tensors(self) -> NormTensors:
        """As `normalised` takes them; their addresses never change."""
        return (self.weight, self.bias) if self.kind is Norm.LayerBias else (self.weight,)

    def forward(self, x: Tensor) -> Tensor:
        return normalised(self.kind, x, self.tensors(), self.eps)
