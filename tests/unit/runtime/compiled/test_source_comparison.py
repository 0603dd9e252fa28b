"""Compiled code is used only if it computes what it was compiled from, but for rounding."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from graphpod_runtime.base.errors import CompileFailed
from graphpod_runtime.compiled.source_comparison import prove

Code = Callable[[list[Tensor]], Sequence[Tensor]]
WIDTH = 96


def half(x: Tensor, absent: None, weight: Tensor, places: Tensor, out: Tensor) -> Tensor:
    """Returns a result, writes an argument, reads a table by integers."""
    out.copy_(x @ weight.t())
    return torch.nn.functional.silu(out) + weight[places]


def examples(dtype: torch.dtype) -> tuple[Tensor | None, ...]:
    x, weight = torch.full((2, WIDTH), math.nan, dtype=dtype), torch.full((WIDTH, WIDTH), math.nan, dtype=dtype)
    return x, None, weight, torch.full((2,), -7), torch.empty(2, WIDTH, dtype=dtype)


def in_double(arguments: list[Tensor]) -> Sequence[Tensor]:
    """`half` in other roundings."""
    x, weight, places, out = arguments
    exact = x.double() @ weight.double().t()
    out.copy_(exact)
    arguments.clear()  # as packages do
    return ((torch.nn.functional.silu(exact) + weight.double()[places]).to(x.dtype),)


def proved(code: Code, dtype: torch.dtype = torch.float32) -> None:
    prove("half", code, half, examples(dtype), (0, 3, 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_roundings_are_no_other_function(dtype: torch.dtype) -> None:
    proved(in_double, dtype)


def off_in_a_result(arguments: list[Tensor]) -> Sequence[Tensor]:
    (result,) = in_double(arguments)
    result[-1, -1] += 0.5
    return (result,)


def off_in_an_argument(arguments: list[Tensor]) -> Sequence[Tensor]:
    out = arguments[-1]
    results = in_double(arguments)
    out[0, 0] += 0.5
    return results


def no_number(arguments: list[Tensor]) -> Sequence[Tensor]:
    (result,) = in_double(arguments)
    result[0, 0] = math.nan
    return (result,)


def last_row_forgotten(arguments: list[Tensor]) -> Sequence[Tensor]:
    """Where they do not fill a vector."""
    (result,) = in_double(arguments)
    if result.shape[0] % 4:
        result[-1] = 0
    return (result,)


def only_the_first_place(arguments: list[Tensor]) -> Sequence[Tensor]:
    """The table is read where integers that nobody set would read it."""
    x, weight, places, out = arguments
    return in_double([x, weight, torch.zeros_like(places), out])


def wrong_in_many_rows(arguments: list[Tensor]) -> Sequence[Tensor]:
    """Beyond those of a small prefill."""
    (result,) = in_double(arguments)
    result[64:] += 0.5
    return (result,)


@pytest.mark.parametrize(
    "code",
    [off_in_a_result, off_in_an_argument, no_number, last_row_forgotten, only_the_first_place, wrong_in_many_rows],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_mistake_is_more_than_rounding(code: Code, dtype: torch.dtype) -> None:
    with pytest.raises(CompileFailed, match=r"half computes something else .* differs by .*; rounding explains"):
        proved(code, dtype)


def test_the_arguments_of_one_trial_are_those_of_the_next() -> None:
    """Code may overwrite what has rows."""

    def overwriting(arguments: list[Tensor]) -> Sequence[Tensor]:
        x = arguments[0]
        results = in_double(arguments)
        x.zero_()
        return results

    with pytest.raises(CompileFailed, match="with 1 rows, result 1 differs"):
        proved(overwriting)
