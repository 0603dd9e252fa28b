"""Where a tensor of a checkpoint goes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from graphpod_policy.model.weight_form import INSTEAD
from graphpod_runtime.base.progress import OnProgress, ignore_progress
from graphpod_runtime.memory.staging import put

PIECE_BYTES = 64 << 20
"""Weights are taken in pieces of this size at most: at 1 MB/s, a piece a minute, reading is seen to go on."""


class Destination(Protocol):
    """What takes one tensor of a checkpoint."""

    @property
    def shapes(self) -> Sequence[Sequence[int]]:
        """That the tensor may have."""

    def fill(self, tensor: Tensor, read: OnProgress = ignore_progress) -> None:
        """Takes `tensor`, which has one of `shapes`, piece by piece; `read` is called after each: a mapped tensor is
        read from storage as it is copied. TensorInvalid for one whose values cannot be what it is for.
        """


class TensorInvalid(ValueError):
    """What is wrong with a tensor of a checkpoint; the message goes on from its name."""


class Cut(NamedTuple):
    """Which part of a checkpoint's tensor a rank takes: of `parts` equal ones along `dim` that at `index`."""

    dim: int = 0
    index: int = 0
    parts: int = 1

    def whole(self, part: Sequence[int]) -> tuple[int, ...]:
        """The shape of the tensor whose part has the shape `part`."""
        return tuple(size * self.parts if dim == self.dim else size for dim, size in enumerate(part))

    def taken(self, tensor: Tensor) -> Tensor:
        """That part of `tensor`; of a mapped one nothing else is read."""
        size = tensor.shape[self.dim] // self.parts
        return tensor.narrow(self.dim, self.index * size, size)


WHOLE = Cut()


@dataclass(frozen=True, slots=True)
class Target:
    """Rows [first, first + rows) of `parameter` take one tensor of the checkpoint (fused weights take several), or its
    part `cut`, `plus` a number."""

    parameter: Tensor
    first: int
    rows: int
    plus: float = 0.0
    cut: Cut = WHOLE

    @property
    def view(self) -> Tensor:
        """The rows to fill."""
        return self.parameter.data[self.first : self.first + self.rows]

    @property
    def shapes(self) -> Sequence[Sequence[int]]:
        return (self.cut.whole(self.view.shape),)

    def fill(self, tensor: Tensor, read: OnProgress = ignore_progress) -> None:
        if tensor.is_floating_point() and tensor.element_size() == 1:
            raise TensorInvalid(
                f"is {str(tensor.dtype).removeprefix('torch.')}, where config.json says plain numbers; FP8 is built "
                "for the matrices of layers: quantize the model again and leave out all others, lm_head too"
            )
        if not tensor.is_floating_point():
            kind = str(tensor.dtype).removeprefix("torch.")
            raise TensorInvalid(f"is {kind}, where config.json says plain numbers; {INSTEAD}")
        tensor = self.cut.taken(tensor)
        rows = max(1, PIECE_BYTES * self.rows // max(1, tensor.nbytes))
        for piece, into in zip(tensor.split(rows), self.view.split(rows), strict=True):
            put(into, piece)
            read()
        if self.plus:
            self.view.add_(self.plus)


@dataclass(frozen=True, slots=True)
class Divided:
    """`into` takes the part `cut` of a tensor."""

    into: Destination
    cut: Cut

    @property
    def shapes(self) -> Sequence[Sequence[int]]:
        return tuple(self.cut.whole(shape) for shape in self.into.shapes)

    def fill(self, tensor: Tensor, read: OnProgress = ignore_progress) -> None:
        self.into.fill(self.cut.taken(tensor), read)


@dataclass(frozen=True, slots=True)
class Stacked:
    """`parts` take the rows of one tensor: what a family has fused, one after the other. Each has one shape."""

    parts: tuple[Destination, ...]

    @property
    def shapes(self) -> Sequence[Sequence[int]]:
        (_, *rest), rows = self.parts[0].shapes[0], sum(part.shapes[0][0] for part in self.parts)
        return ((rows, *rest),)

    def apart(self, tensor: Tensor) -> Iterator[tuple[Destination, Tensor]]:
        """Each with its rows of `tensor`."""
        rows = [part.shapes[0][0] for part in self.parts]
        return zip(self.parts, tensor.split(rows), strict=True)

    def fill(self, tensor: Tensor, read: OnProgress = ignore_progress) -> None:
        for part, own in self.apart(tensor):
            part.fill(own, read)


@dataclass(frozen=True, slots=True)
class Ordered:
    """`into` takes a tensor whose elements along its first dimension, or its last, are in another order."""

    into: Destination
    order: Tensor
    last: bool = False

    @property
    def shapes(self) -> Sequence[Sequence[int]]:
        return self.into.shapes

    def fill(self, tensor: Tensor, read: OnProgress = ignore_progress) -> None:
        if self.last:
            self.into.fill(tensor[..., self.order], read)
            return
        rows = max(1, PIECE_BYTES * tensor.shape[0] // max(1, tensor.nbytes))
        pieces = []
        for piece in tensor.split(rows):
            pieces.append(piece.clone())
            read()
        self.into.fill(torch.cat(pieces)[self.order], read)
