"""The gate of an MLP."""

import torch.nn.functional as functional
from torch import Tensor

from graphpod_runtime.base.shapes import Activation


def activated(kind: Activation, x: Tensor) -> Tensor:
    """act(x), by `kind`."""
    return functional.gelu(x, approximate="tanh") if kind is Activation.GeluTanh else functional.silu(x)


def gated(kind: Activation, made: Tensor) -> Tensor:
    """act(gate) · up of what a matrix of both has made, [rows, 2 · width] -> [rows, width]."""
    gate, up = made.chunk(2, dim=-1)
    return activated(kind, gate).mul_(up)
