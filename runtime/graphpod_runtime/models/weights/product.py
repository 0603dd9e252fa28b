"""x · weightᵀ + bias for a weight of any form.

What compiles layers sees plain tensors: a weight goes into a compiled function as a tuple of them, and its form, which
is no tensor, decides which operators are traced.
"""

from enum import Enum

from torch import Tensor

from graphpod_runtime.kernels.matrix_product import product

Tensors = tuple[Tensor | None, ...]
"""What a weight consists of, in the order of its form; None where a checkpoint leaves one out."""


class Form(Enum):
    """How a weight is stored, and which tensors it consists of."""

    Plain = "Plain"
    """(weight [out, in]), of the activations' type."""


def matmul(form: Form, x: Tensor, weight: Tensors, bias: Tensor | None) -> Tensor:
    """x [rows, in] · weightᵀ + bias [out] -> [rows, out]; `weight` has the tensors of `form`."""
    (matrix,) = weight
    assert matrix is not None
    return product(x, matrix, bias)
