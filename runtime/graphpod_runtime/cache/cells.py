"""Keys and values as a KV cache holds them, in the model's element type or in FP8.

FP8 (e4m3) holds x / scale, clamped to what it can hold: one scale for the keys and one for the values of a layer,
known before anything is captured. Attention multiplies by them again, q · k and the result respectively, so nothing is
rounded for it a second time.
"""

import torch
from torch import Tensor


def quantises(dtype: torch.dtype) -> bool:
    """Whether a cache of `dtype` holds scaled values."""
    return dtype.itemsize == 1


def stored(x: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    """`x` as a cache of `dtype` holds it."""
    if not quantises(dtype):
        return x.to(dtype)
    limit = torch.finfo(dtype).max
    # Not divided: CUDA multiplies by the inverse instead, and every device is to hold the same bytes.
    return (x.float() * (1.0 / scale)).clamp(-limit, limit).to(dtype)


def bits(cells: Tensor) -> Tensor:
    """The same memory, in a type that torch can copy by an index: FP8 it cannot."""
    return cells.view(torch.uint8) if quantises(cells.dtype) else cells
