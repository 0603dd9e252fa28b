"""Plain weights to FP8: the scale of each output channel.

The largest weight of a row need not become the largest number of FP8. Its error, as that of any float, depends on where
in an octave the weights of the row fall: of scales over one octave, the one with the least squared error is taken. Its
error is an eighth less than that of the smallest.
"""

import torch
from torch import Tensor

from graphpod_runtime.kernels.fp8_product import FP8, LARGEST, LEAST_SCALE

STEPS = 8
"""Scales that are tried, over one octave."""
SPLIT = 2.0**20 + 1
"""Of Dekker's splitting: what is left of a single-precision number are its first four bits, e4m3's."""
PIECE = 1 << 16
"""Elements that a CPU compares at one time, in its cache."""


def quantized_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """`rows` [n, in], of any element type, in FP8, and the scale of each [n]."""
    wide = rows.float()
    height = max(1, PIECE // max(1, rows.shape[1])) if rows.device.type == "cpu" else max(1, rows.shape[0])
    scales = torch.cat([_scales(piece) for piece in wide.split(height)])
    return (wide / scales[:, None]).clamp_(-LARGEST, LARGEST).to(FP8), scales


def _scales(wide: Tensor) -> Tensor:
    least = (wide.abs().amax(dim=1) / LARGEST).clamp_(min=LEAST_SCALE)
    best, chosen = torch.full_like(least, torch.inf), least
    for step in range(STEPS):
        scale = least * 2 ** (step / STEPS)
        # Numbers that FP8 holds with fewer bits, being small, count as if they had four: they have no part in the sum.
        scaled = wide / scale[:, None]
        large = scaled * SPLIT
        error = scaled.sub_(large - large.sub(scaled)).square_().sum(dim=1) * scale * scale
        better = error < best
        best, chosen = torch.where(better, error, best), torch.where(better, scale, chosen)
    return chosen
