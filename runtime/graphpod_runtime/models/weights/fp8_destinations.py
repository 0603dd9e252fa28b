"""Where the tensors of FP8 weights go, and what is checked of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphpod_runtime.base.progress import OnProgress, ignore_progress
from graphpod_runtime.kernels.fp8_product import BLOCK, FP8
from graphpod_runtime.memory.staging import put
from graphpod_runtime.models.tensor_destination import PIECE_BYTES, WHOLE, Cut, TensorInvalid
from graphpod_runtime.models.weights.channel_scales import quantized_rows


@dataclass(frozen=True, slots=True)
class Fp8Rows:
    """Rows [first, first + rows) of `matrix` [out, in] take what is FP8 already, or its part `cut`."""

    matrix: Tensor
    first: int
    rows: int
    cut: Cut = WHOLE

    @property
    def shapes(self) -> Sequence[Sequence[int]]:
        return (self.cut.whole((self.rows, self.matrix.shape[1])),)

    def fill(self, tensor: Tensor, read: OnProgress = ignore_progress) -> None:
        if tensor.dtype is not FP8:
            raise TensorInvalid(
                f"is {_name(tensor)}, and quantization_config says {_name(self.matrix)}; take the config.json of these "
                "weights"
            )
        into, tensor = self.matrix[self.first : self.first + self.rows], self.cut.taken(tensor)
        for piece, rows in zip(tensor.split(_rows(tensor)), into.split(_rows(tensor)), strict=True):
            put(rows, piece)
            read()


@dataclass(frozen=True, slots=True)
class OnlineRows:
    """Rows [first, first + rows) of `matrix` and of `scale` [out] take plain weights, or their part `cut`, and quantize
    them. Ranks that divide the inputs of an output have one scale for it, that of the whole row."""

    matrix: Tensor
    scale: Tensor
    first: int
    rows: int
    cut: Cut = WHOLE

    @property
    def shapes(self) -> Sequence[Sequence[int]]:
        return (self.cut.whole((self.rows, self.matrix.shape[1])),)

    def fill(self, tensor: Tensor, read: OnProgress = ignore_progress) -> None:
        tensor = tensor if self.cut.dim else self.cut.taken(tensor)
        at, count = self.first, _rows(tensor)
        for piece in tensor.split(count):
            rows = slice(at, at + piece.shape[0])
            matrix, scale = quantized_rows(piece.to(self.matrix.device))
            if not bool(scale.isfinite().all()):
                raise TensorInvalid("has a weight that is not finite: it has no scale; copy the model again")
            self.matrix[rows].copy_(self.cut.taken(matrix) if self.cut.dim else matrix)
            self.scale[rows].copy_(scale)
            at += piece.shape[0]
            read()


@dataclass(frozen=True, slots=True)
class RowScales:
    """Entries [first, first + rows) of `scale` [out] take a scale for each row, or one for all of them. A part `cut` of
    the rows has a part of the scales."""

    scale: Tensor
    first: int
    rows: int
    one: bool
    cut: Cut = WHOLE

    @property
    def shapes(self) -> Sequence[Sequence[int]]:
        if self.one:
            return (), (1,)
        return tuple(shape if self.cut.dim else self.cut.whole(shape) for shape in ((self.rows, 1), (self.rows,)))

    def fill(self, tensor: Tensor, read: OnProgress = ignore_progress) -> None:
        scales = _checked(tensor)
        if not (self.one or self.cut.dim):
            scales = self.cut.taken(scales)
        self.scale[self.first : self.first + self.rows] = scales.flatten()
        read()


@dataclass(frozen=True, slots=True)
class BlockScales:
    """Rows [first, first + rows) of a weight by blocks, or its part `cut`, take theirs into `scale`, which has a row of
    scales for 128 rows of the weight, or for one. A part begins and ends where a block does."""

    scale: Tensor
    first: int
    rows: int
    shared: bool
    cut: Cut = WHOLE

    @property
    def shapes(self) -> Sequence[Sequence[int]]:
        return (self.cut.whole((-(-self.rows // BLOCK), self.scale.shape[1])),)

    def fill(self, tensor: Tensor, read: OnProgress = ignore_progress) -> None:
        scales = _checked(self.cut.taken(tensor))
        if self.shared:
            first = self.first // BLOCK
            self.scale[first : first + scales.shape[0]] = scales
        else:
            self.scale[self.first : self.first + self.rows] = scales.repeat_interleave(BLOCK, 0)[: self.rows]
        read()


@dataclass(frozen=True, slots=True)
class ActivationScale:
    """`scale` [1] takes that of the activations. Fused weights have the same activations: the largest of theirs."""

    scale: Tensor

    @property
    def shapes(self) -> Sequence[Sequence[int]]:
        return (), (1,)

    def fill(self, tensor: Tensor, read: OnProgress = ignore_progress) -> None:
        given = _checked(tensor)
        if not bool((given > 0).all()):
            raise TensorInvalid("is 0: activations cannot be divided by it; calibrate the model again")
        self.scale.copy_(torch.maximum(self.scale, given.to(self.scale.device).view(1)))
        read()


def _checked(tensor: Tensor) -> Tensor:
    """Scales, in single precision."""
    if not tensor.is_floating_point():
        raise TensorInvalid(f"is {_name(tensor)}, not numbers that scale weights")
    wide = tensor.float()
    if not bool(wide.isfinite().all()):
        raise TensorInvalid("has a scale that is not finite; copy or quantize the model again")
    if bool((wide < 0).any()):
        raise TensorInvalid("has a negative scale; quantize the model again")
    return wide


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _rows(tensor: Tensor) -> int:
    """Of one piece."""
    return max(1, PIECE_BYTES * tensor.shape[0] // max(1, tensor.nbytes))
