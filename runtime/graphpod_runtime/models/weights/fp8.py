"""Weights in FP8 (e4m3). Buffers, not parameters: what draws or nudges parameters knows no FP8."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from graphpod_policy.model.fp8_scheme import Fp8Scheme, Granularity
from graphpod_runtime.kernels.fp8_product import BLOCK, FP8
from graphpod_runtime.models.tensor_destination import WHOLE, Cut, Destination
from graphpod_runtime.models.weights.channel_scales import quantized_rows
from graphpod_runtime.models.weights.fp8_destinations import (
    ActivationScale,
    BlockScales,
    Fp8Rows,
    OnlineRows,
    RowScales,
)
from graphpod_runtime.models.weights.product import Form, Tensors, matmul

TIPPING = 2.0**-10
"""What scales change by to tip some activations: a hundredth of the way to the next number of FP8."""
DRAWN_ACTIVATION_SCALE = 1 / 16
"""Of random models with static scales: activations up to 28 are not cut off."""


class Fp8Weight(nn.Module):
    """A scale for each output channel. A checkpoint's scale of a whole matrix is that of each of its channels."""

    form = Form.Fp8
    matrix: Tensor
    scale: Tensor
    activation_scale: Tensor | None

    def __init__(self, inputs: int, outputs: int, scheme: Fp8Scheme) -> None:
        super().__init__()
        self._scheme = scheme
        self.register_buffer("matrix", torch.zeros(outputs, inputs, dtype=FP8))
        self.register_buffer("scale", torch.zeros(outputs))
        self.register_buffer("activation_scale", torch.zeros(1) if scheme.static else None)

    def tensors(self) -> Tensors:
        return self.matrix, self.scale, self.activation_scale

    def matmul(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        return matmul(self.form, x, self.tensors(), bias)

    def destinations(self, first: int, rows: int, cut: Cut = WHOLE) -> Mapping[str, Destination]:
        if self._scheme.online:
            return {"weight": OnlineRows(self.matrix, self.scale, first, rows, cut)}
        one = self._scheme.granularity is Granularity.Tensor
        found: dict[str, Destination] = {
            "weight": Fp8Rows(self.matrix, first, rows, cut),
            self._scheme.scale: RowScales(self.scale, first, rows, one, cut),
        }
        if self.activation_scale is not None:
            found["input_scale"] = ActivationScale(self.activation_scale)
        return found

    def fill(self, matrix: Tensor) -> None:
        for into, made in zip((self.matrix, self.scale), quantized_rows(matrix), strict=True):
            into.copy_(made)
        if self.activation_scale is not None:
            self.activation_scale.fill_(DRAWN_ACTIVATION_SCALE)


class Fp8BlockWeight(nn.Module):
    """A scale for each block of 128 × 128. `parts` are the rows of what is fused: where blocks of one end in the middle
    of 128 rows, each row has its own scales."""

    form = Form.Fp8Blocks
    matrix: Tensor
    scale: Tensor

    def __init__(self, inputs: int, parts: Sequence[int], scheme: Fp8Scheme) -> None:
        super().__init__()
        self._scheme, outputs = scheme, sum(parts)
        self._shared = all(part % BLOCK == 0 for part in parts[:-1])
        rows = -(-outputs // BLOCK) if self._shared else outputs
        self.register_buffer("matrix", torch.zeros(outputs, inputs, dtype=FP8))
        self.register_buffer("scale", torch.zeros(rows, -(-inputs // BLOCK)))

    def tensors(self) -> Tensors:
        return self.matrix, self.scale

    def matmul(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        return matmul(self.form, x, self.tensors(), bias)

    def destinations(self, first: int, rows: int, cut: Cut = WHOLE) -> Mapping[str, Destination]:
        part = self.matrix.shape[1] if cut.dim else rows
        assert cut.parts == 1 or part % BLOCK == 0, "a part that begins within a block is refused before a start"
        return {
            "weight": Fp8Rows(self.matrix, first, rows, cut),
            self._scheme.scale: BlockScales(self.scale, first, rows, self._shared, cut),
        }

    def fill(self, matrix: Tensor) -> None:
        (outputs, inputs), height = matrix.shape, BLOCK if self._shared else 1
        whole = functional.pad(matrix, (0, -inputs % BLOCK, 0, -outputs % height))
        blocks = whole.unflatten(1, (-1, BLOCK)).unflatten(0, (-1, height)).transpose(1, 2)
        made, scales = quantized_rows(blocks.reshape(-1, height * BLOCK))
        self.matrix.copy_(made.view(blocks.shape).transpose(1, 2).reshape(whole.shape)[:outputs, :inputs])
        self.scale.copy_(scales.view(self.scale.shape))


def fp8_weights(module: nn.Module) -> tuple[Fp8Weight | Fp8BlockWeight, ...]:
    """All of `module`, in their order."""
    return tuple(one for one in module.modules() if isinstance(one, Fp8Weight | Fp8BlockWeight))


@contextmanager
def tipped(weights: Sequence[Fp8Weight | Fp8BlockWeight]) -> Iterator[None]:
    """Within, all scales are a little larger, in their places: some activations round to another number of FP8."""
    before = [weight.scale.clone() for weight in weights]
    for weight in weights:
        weight.scale.mul_(1 + TIPPING)
    try:
        yield
    finally:
        for weight, scale in zip(weights, before, strict=True):
            weight.scale.copy_(scale)
