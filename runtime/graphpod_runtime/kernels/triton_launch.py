"""Launches of Triton's kernels by those who launch the same ones at every step."""

from typing import Any


class Launches:
    """Of kernels that one object calls, each in a few kinds.

    Choosing the compiled kernel takes longer than launching it. What a kernel is specialised by must follow from its
    kind: the types of its tensors, the values of its numbers and, where it is not excluded, how addresses are aligned.
    """

    def __init__(self) -> None:
        self._compiled: dict[tuple[object, ...], Any] = {}

    def __call__(
        self,
        kernel: Any,
        grid: tuple[int, int, int],
        arguments: tuple[Any, ...],
        kind: tuple[object, ...] = (),
        **options: int,
    ) -> None:
        """`arguments`: all in their order, constants too. `options` count where one of its kind is first launched."""
        key = kernel.__name__, *kind
        compiled = self._compiled.get(key)
        if compiled is None:
            self._compiled[key] = kernel[grid](*arguments, **options)
        else:
            compiled[grid](*arguments)
