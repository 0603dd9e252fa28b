"""What attention over latents gives, through each head's projection of values and the matrix of all heads."""

import torch
from torch import Tensor

from graphpod_runtime.kernels.matrix_product import product


def latent_product(x: Tensor, values: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    """x [rows, heads · cached], whose heads begin with a sum of latents, by `values` [heads, value, rank] and `matrix`
    [out, heads · value] -> [rows, out]"""
    rows, (heads, width, rank) = x.shape[0], values.shape
    latents = x.view(rows, heads, x.shape[1] // heads)[:, :, :rank].transpose(0, 1)
    # A copy for any number of rows: of one row `reshape` needs none, and cannot be compiled for all numbers at once.
    own = torch.bmm(latents, values.transpose(1, 2)).transpose(0, 1).clone(memory_format=torch.contiguous_format)
    return product(own.view(rows, heads * width), matrix, bias)
