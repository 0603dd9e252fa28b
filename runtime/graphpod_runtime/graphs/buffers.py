"""Static buffers: the only memory that changes between two replays of a graph, at addresses that never change."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from graphpod_runtime.base import tensor_pytree
from graphpod_runtime.base.shapes import HOST


@dataclass(frozen=True, slots=True)
class Slot:
    """One named buffer [rows, *row]. `padding` is the value of rows beyond the real ones; None leaves them alone."""

    name: str
    rows: int
    row: tuple[int, ...]
    dtype: torch.dtype
    padding: float | None = 0


class Buffers:
    """Slots allocated once, for the largest size; smaller sizes use their first rows."""

    def __init__(self, *slots: Slot, device: torch.device = HOST) -> None:
        self._slots = {slot.name: slot for slot in slots}
        if len(self._slots) != len(slots):
            raise ValueError(f"two slots of one name among {[slot.name for slot in slots]}")
        self._tensors = {
            slot.name: torch.full((slot.rows, *slot.row), slot.padding or 0, dtype=slot.dtype, device=device)
            for slot in slots
        }

    def view(self, name: str, size: int) -> Tensor:
        """The first `size` rows of `name`."""
        return self._tensors[name][:size]

    def load(self, name: str, live: Tensor, size: int) -> None:
        """`live` [count, ...] into the first rows of `name`, padding up to `size` rows.

        A live row narrower than the slot's (a block table) is padded on its right as well. Pageable memory of the host
        is read before this returns, and nothing waits for the device; pinned memory must keep its content until then.
        What lies in the buffer itself stays as it is: who wrote it there wrote the padding, too.
        """
        slot, target = self._slots[name], self._tensors[name][:size]
        count = live.shape[0]
        if count > size or size > slot.rows:
            raise ValueError(f"{name}: {count} rows do not fit size {size} of a slot with {slot.rows} rows")
        if live.data_ptr() == target.data_ptr():
            return
        if slot.row and live.shape[1] < slot.row[0]:
            target[:count, live.shape[1] :] = slot.padding or 0
            target[:count, : live.shape[1]].copy_(live, non_blocking=True)
        else:
            target[:count].copy_(live, non_blocking=True)
        if slot.padding is not None and count < size:
            target[count:] = slot.padding

    def pad_with_nan(self) -> None:
        """From now on rows beyond the real ones are NaN in every floating slot that is padded."""
        for name, slot in self._slots.items():
            if slot.dtype.is_floating_point and slot.padding is not None:
                self._slots[name] = replace(slot, padding=torch.nan)

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        """Names and whole buffers, for registration."""
        return iter(self._tensors.items())


class Outputs:
    """One tree of buffers for what the passes of a phase return: a tuple whose members may be nested (auxiliary hidden
    states, a pipeline's pairs). Each is of the largest size; smaller sizes use its first rows.
    """

    def __init__(self, like: tuple[Any, ...], rows: int) -> None:
        """Nesting, shapes and dtypes are those of `like`, what a pass of a few rows returned."""
        leaves, self._shape = tensor_pytree.leaves_of(like)
        self._buffers = [torch.zeros((rows, *leaf.shape[1:]), dtype=leaf.dtype, device=leaf.device) for leaf in leaves]
        self._flat = all(isinstance(member, Tensor) for member in like)

    def write(self, results: tuple[Any, ...]) -> None:
        """`results` into the first rows. ValueError when they are nested in another way, or of another type."""
        leaves, shape = tensor_pytree.leaves_of(results)
        if shape != self._shape:
            raise ValueError(f"the pass returned {shape}; its buffers are for {self._shape}")
        for index, (buffer, leaf) in enumerate(zip(self._buffers, leaves, strict=True)):
            if leaf.dtype != buffer.dtype:
                raise ValueError(f"result {index} of the pass is {leaf.dtype}; its buffer is {buffer.dtype}")
            buffer[: leaf.shape[0]].copy_(leaf)

    def view(self, count: int) -> tuple[Any, ...]:
        """The first `count` rows of all, nested as they were returned."""
        rows = [buffer[:count] for buffer in self._buffers]
        return tuple(rows) if self._flat else self._shape.filled(rows)

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        """Names and whole buffers, for registration."""
        return ((f"result.{index}", buffer) for index, buffer in enumerate(self._buffers))
