"""Compiled code compared with its source, on random arguments, before anything depends on it.

Plain eager, which the self-check compares replays with, runs compiled halves too: a compiler's mistake would stand on
both sides of that comparison. Here it stands on one. Their roundings differ, so the allowance is measured: a multiple
of what an error in the last place of every argument does to the uncompiled function. Routers choose in all runs what
they chose in the first one: a last place may tip a choice, and would be no rounding. What their own scores would choose
may be better by a rounding, and no more.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from graphpod_runtime.base.errors import CompileFailed
from graphpod_runtime.base.pinned_choices import PinnedChoices
from graphpod_runtime.compiled.aot import Argument, Function, TensorFunction, like, tensors_of

FP8 = torch.float8_e4m3fn
COUNTS = (1, 5, 64)
"""Numbers of rows that are tried: one, one that fills no vector, and one of a small prefill."""
MANY_ON_CPU, MANY = 300, 2048
"""One more: beyond a CPU's ladder, and a long prefill on devices that compute it in no time."""
NUDGES = 8
"""Times the difference that a unit or two in the last place of every argument makes."""
TIPPING = 2.0**-10
"""A nudge, in functions that round activations to FP8. A last place may tip one of them to the next number of FP8, an
eighth off: nudges must be as large as tips some of them, for chance would decide which of two runs has one."""


def prove(
    name: str,
    code: Callable[[list[Tensor]], Sequence[Tensor]],
    function: Function,
    examples: tuple[Argument, ...],
    rows: tuple[int, ...],
) -> None:
    """CompileFailed when `code` returns, or writes into arguments that have rows, what `function` does not. `examples`
    and `rows` as for packages; contents of examples are not read. All counts are tried before one is judged: of ranks
    that compute together none may stop before the others.
    """
    wrong = ""
    tensors, plain = tensors_of(examples), TensorFunction(function, examples, rows).forward
    with_rows = [at for at, index in enumerate(tensors) if index in rows]
    many = MANY_ON_CPU if examples[rows[0]].device.type == "cpu" else MANY
    most = [like(examples[index], many if index in rows else None) for index in tensors]
    places = min((one.shape[0] for at, one in enumerate(most) if at not in with_rows and one.dim() > 0), default=1)
    generator = torch.Generator(most[0].device).manual_seed(0)
    drawn = [_drawn(tensor, generator, places, rows=at in with_rows) for at, tensor in enumerate(most)]
    least = TIPPING if any(tensor.dtype is FP8 for tensor in drawn) else 0.0
    moved = [nudged(tensor, generator, least) for tensor in drawn]
    for count in (*COUNTS, many):
        given, other = (
            [tensor[:count] if at in with_rows else tensor for at, tensor in enumerate(each)] for each in (drawn, moved)
        )
        choices = PinnedChoices()
        with choices.noted():
            wanted = _called(lambda arguments: plain(*arguments), given, with_rows)
        with choices.repeated():
            rounded = _called(lambda arguments: plain(*arguments), other, with_rows)
        behind = NUDGES * (1 + choices.behind)
        with choices.repeated():
            found = _called(code, given, with_rows)
        if not choices.behind <= behind:
            wrong = wrong or (
                f"{name} computes something else than what it was compiled from: with {count} rows, a router's choice "
                f"is {choices.behind:.3g} roundings behind the best; rounding explains {behind:.3g}"
            )
        for index, (one, two, got) in enumerate(zip(wanted, rounded, found, strict=True)):
            allowed = NUDGES * (_furthest(one, two) + _least(one))
            difference = _furthest(one, got)
            if not difference <= allowed:
                wrong = wrong or (
                    f"{name} computes something else than what it was compiled from: with {count} rows, result {index} "
                    f"differs by {difference:.3g}; rounding explains {allowed:.3g}"
                )
    if wrong:
        raise CompileFailed(wrong)


def _drawn(tensor: Tensor, generator: torch.Generator, places: int, *, rows: bool) -> Tensor:
    """`tensor` filled with normal numbers, those of a matrix or a stack of some scaled so that a product stays near
    one; integers, which are places in tables, with any of the first `places`, which every table has. `rows`: its first
    dimension is rows."""
    if not tensor.is_floating_point():
        return tensor.random_(0, places, generator=generator)
    if tensor.dtype is FP8:
        return tensor.copy_(torch.empty(tensor.shape, device=tensor.device).normal_(0, 1, generator=generator))
    matrix = tensor.dim() == 2 or (tensor.dim() == 3 and not rows)
    return tensor.normal_(0, tensor.shape[-1] ** -0.5 if matrix else 1, generator=generator)


def nudged(tensor: Tensor, generator: torch.Generator, least: float = 0.0) -> Tensor:
    """Every element a unit or two in the last place off, up or down, or by the factor 1 ± `least` if that is more;
    integers and FP8 as they are."""
    if not tensor.is_floating_point() or tensor.dtype is FP8:
        return tensor
    up = torch.empty_like(tensor).bernoulli_(generator=generator) > 0
    eps = max(least, torch.finfo(tensor.dtype).eps)
    return torch.where(up, tensor * (1 + eps), tensor * (1 - eps))


def _called(
    function: Callable[[list[Tensor]], Sequence[Tensor]], arguments: list[Tensor], with_rows: list[int]
) -> tuple[Tensor, ...]:
    """Results of `function`, and the arguments that have rows as it left them; `arguments` stay as they are."""
    own = [argument.clone() if at in with_rows else argument for at, argument in enumerate(arguments)]
    results = tuple(result.clone() for result in function([*own]))  # a package empties its list
    return *results, *(own[at] for at in with_rows)


def _furthest(one: Tensor, other: Tensor) -> float:
    """The largest difference of two elements; NaN when there is one."""
    return float((one.double() - other.double()).abs().max())


def _least(tensor: Tensor) -> float:
    """A unit in the last place of the largest element: what a result of few terms may be off by."""
    return torch.finfo(tensor.dtype).eps * float(tensor.abs().max()) if tensor.is_floating_point() else 0.0
