"""x · weightᵀ + bias for a weight of any form.

What compiles layers sees plain tensors: a weight goes into a compiled function as a tuple of them, and its form, which
is no tensor, decides which operators are traced.
"""

from enum import Enum

from torch import Tensor

from graphpod_runtime.kernels.fp8_product import block_product, row_product
from graphpod_runtime.kernels.latent_product import latent_product
from graphpod_runtime.kernels.matrix_product import product

Tensors = tuple[Tensor | None, ...]
"""What a weight consists of, in the order of its form; None where a checkpoint leaves one out."""

Arguments = tuple[Tensors, Tensor | None, Tensors, Tensor | None]
"""What an MLP consists of: the weight that widens and its bias, the weight that narrows and its bias."""


class Form(Enum):
    """How a weight is stored, and which tensors it consists of."""

    Plain = "Plain"
    """(weight [out, in]), of the activations' type."""
    Fp8 = "Fp8"
    """(weight [out, in], scale [out], scale of all activations [1] or None: each row has its own)"""
    Fp8Blocks = "Fp8Blocks"
    """(weight [out, in], scales of blocks), by `kernels/fp8_product.py`"""
    Latent = "Latent"
    """Those of `models/attention/latent_weights.py`, of the activations' type; of a result, by
    `kernels/latent_product.py`."""


def matmul(form: Form, x: Tensor, weight: Tensors, bias: Tensor | None) -> Tensor:
    """x [rows, in] · weightᵀ + bias [out] -> [rows, out]; `weight` has the tensors of `form`."""
    matrix, *scales = weight
    assert matrix is not None
    if form is Form.Plain:
        return product(x, matrix, bias)
    scale = scales[0]
    assert scale is not None
    if form is Form.Latent:
        return latent_product(x, matrix, scale, bias)
    if form is Form.Fp8Blocks:
        return block_product(x, matrix, scale, bias)
    return row_product(x, matrix, scale, scales[1], bias)
