"""Break points: calls that no segment holds.

    @break_point
    def mixed(layer: int, x: Tensor, gate: Tensor) -> Mixed: ...

Outside of a capture a break point is its function. When a breakable graph is captured, a call ends the segment, runs
eagerly, and the next segment reads what it returned; a replay runs it again at that place, over the real rows alone.

What crosses a break lies in slots of the largest size outside the pool, shared by all layers and sizes (`BreakSlots`):
a segment writes the arguments there and reads the result there. So the arguments are tensors of rows, the result is a
tensor of rows or a nesting of them, and a result is to be used up before the same break point is called again. The
slots are made before any capture, in a rehearsal: one small pass that notes what each break point takes and returns.

Attention has a lane of its own (`break_arena.py`): its calls are all of one shape and bound once for all layers.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from graphpod_runtime.base import tensor_pytree
from graphpod_runtime.base.errors import CaptureFailed

Rows = tuple[Tensor, ...]
"""Arguments of a call: tensors whose first dimension is the rows of the pass."""


class Surroundings(Protocol):
    """What goes on while the model's code runs, and so what a call of a break point becomes."""

    def meet(self, point: "BreakPoint", layer: int, rows: Rows) -> Any: ...


_around: Surroundings | None = None


@contextmanager
def surrounded(surroundings: Surroundings | None) -> Iterator[None]:
    """Break points called in here meet `surroundings`; None: nothing, they are their functions."""
    global _around
    before, _around = _around, surroundings
    try:
        yield
    finally:
        _around = before


class BreakPoint:
    """A function (layer, *rows) -> rows, nested or not, that runs outside of segments."""

    def __init__(self, run: Callable[..., Any], name: str | None = None) -> None:
        self.run = run
        self.name = name or getattr(run, "__name__", type(run).__name__)

    def __call__(self, layer: int, *rows: Tensor) -> Any:
        return self.run(layer, *rows) if _around is None else _around.meet(self, layer, rows)


def break_point(run: Callable[..., Any]) -> BreakPoint:
    """The decorator. For a bound method: `self.mix = break_point(self._mix)` in `__init__`."""
    return BreakPoint(run)


class Narrowed:
    """Break points see the first `count` rows of `size`, as in a replay; the padded tail of their results is zero."""

    def __init__(self, size: int, count: int) -> None:
        self._size, self._count = size, count

    def meet(self, point: BreakPoint, layer: int, rows: Rows) -> Any:
        return tensor_pytree.mapped(self._padded, point.run(layer, *(row[: self._count] for row in rows)))

    def _padded(self, live: Tensor) -> Tensor:
        if live.shape[0] != self._count:
            raise ValueError(
                f"a break returned {list(live.shape)} for {self._count} rows; its first dimension must be the rows"
            )
        out = live.new_zeros((self._size, *live.shape[1:]))
        out[: self._count] = live
        return out


class Forbidden:
    """Break points cannot be called in `whole`, which would hold their code and freeze what it read."""

    def __init__(self, whole: str) -> None:
        self._whole = whole

    def meet(self, point: BreakPoint, layer: int, rows: Rows) -> Any:
        raise CaptureFailed(
            f"layer {layer} calls the break point {point.name}, which {self._whole} cannot hold; use Breakable"
        )


class Slots:
    """The place of one break point's arguments and result, for calls of one shape."""

    def __init__(self, arguments: Rows, result: Any, rows: int) -> None:
        """Shapes and dtypes are those of one call's `arguments` and `result`; the place is for `rows` rows."""
        leaves, self.shape = tensor_pytree.leaves_of(result)
        self.arguments = tuple(_place(argument, rows) for argument in arguments)
        self.results = [_place(leaf, rows) for leaf in leaves]

    def take(self, result: Any, count: int) -> None:
        """`result` of `count` rows into its place. ValueError unless it is nested, shaped and typed as at capture."""
        leaves, shape = tensor_pytree.leaves_of(result)
        if shape != self.shape:
            raise ValueError(f"the break returned {shape}; its graph was captured for {self.shape}")
        for leaf, slot in zip(leaves, self.results, strict=True):
            place = slot[:count]
            if leaf.shape != place.shape or leaf.dtype != place.dtype:
                raise ValueError(
                    f"the break returned {list(leaf.shape)} of {leaf.dtype} where {list(place.shape)} of {place.dtype} "
                    "belong; the first dimension of every tensor must be the rows"
                )
            place.copy_(leaf)

    def result(self, size: int) -> Any:
        """The result as the next segment reads it: `size` rows of the place."""
        return self.shape.filled([slot[:size] for slot in self.results])


class BreakSlots:
    """All slots of one engine, each for `rows` rows. As surroundings it is the rehearsal that makes them."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._slots: dict[tuple[BreakPoint, tuple[tuple[torch.Size, torch.dtype], ...]], Slots] = {}

    def meet(self, point: BreakPoint, layer: int, rows: Rows) -> Any:
        """Runs the call and makes its slots."""
        result = point.run(layer, *rows)
        key = point, _signature(rows)
        if key not in self._slots:
            self._slots[key] = Slots(rows, result, self._rows)
        return result

    def of(self, point: BreakPoint, rows: Rows) -> Slots:
        """The slots of a call. CaptureFailed for one that the rehearsal has not seen."""
        slots = self._slots.get((point, _signature(rows)))
        if slots is None:
            shapes = ", ".join(str(list(row.shape)) for row in rows)
            raise CaptureFailed(
                f"the break point {point.name} was not called with rows like {shapes} in the rehearsal: it has no slots"
            )
        return slots

    def tensors(self) -> dict[str, Tensor]:
        """Every slot by name, for registration."""
        return {
            f"break.{point.name}.{index}.{number}": tensor
            for index, ((point, _), slots) in enumerate(self._slots.items())
            for number, tensor in enumerate((*slots.arguments, *slots.results))
        }


class Stop:
    """One call of a break point between two segments of a graph."""

    def __init__(self, point: BreakPoint, layer: int, slots: Slots, size: int) -> None:
        self.layer = layer
        self._point, self._slots, self._size = point, slots, size

    def __str__(self) -> str:
        return f"layer {self.layer} ({self._point.name})"

    def run(self, count: int) -> None:
        """The call over the first `count` rows of its slots; the padded tail of the result is zeroed."""
        self._slots.take(self._point.run(self.layer, *(slot[:count] for slot in self._slots.arguments)), count)
        if count < self._size:
            for slot in self._slots.results:
                slot[count : self._size].zero_()


def _place(like: Tensor, rows: int) -> Tensor:
    return torch.zeros((rows, *like.shape[1:]), dtype=like.dtype, device=like.device)


def _signature(rows: Rows) -> tuple[tuple[torch.Size, torch.dtype], ...]:
    return tuple((row.shape[1:], row.dtype) for row in rows)
