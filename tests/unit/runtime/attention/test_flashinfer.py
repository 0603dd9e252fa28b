"""What a pass keeps of flashinfer's calls: found wherever a version passes it, refused where it cannot be found."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from graphpod_runtime.attention.flashinfer import PageLists, frozen

Order = Callable[[Tensor, Tensor, Tensor, float, Tensor], tuple[Any, ...]]
"""(q, keys, values, scale, out) -> the arguments of the kernel."""


class Kernels:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def paged_run(self, *arguments: Any) -> None:
        self.calls.append(arguments)


class Planner:
    """Passes its kernel what `order` says, as flashinfer's planners do."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._cached_module = Kernels()
        self._sm_scale = 1.0

    def run(self, q: Tensor, cache: tuple[Tensor, Tensor], *, out: Tensor) -> None:
        self._cached_module.paged_run(*self._order(q, *cache, self._sm_scale, out))


def tensors(count: int) -> list[Tensor]:
    return [torch.full((2,), float(index)) for index in range(count)]


@pytest.mark.parametrize(
    "order",
    [
        lambda q, keys, values, scale, out: (None, q, keys, values, out, 0.0, scale, 1.0, 1e4, True),
        lambda q, keys, values, scale, out: (scale, out, values, 1.0, 1.0, q, keys),
    ],
    ids=["as it is", "in another order"],
)
def test_every_layers_call_has_its_own_cache_and_scale_wherever_they_stand(order: Order) -> None:
    """The scale is 1, as other arguments are: only the very object is replaced."""
    q, out, *rest = tensors(6)
    first, second = (rest[0], rest[1]), (rest[2], rest[3])
    planner = Planner(order)
    kernels, scale = planner._cached_module, planner._sm_scale
    kernel = frozen(planner, q, first, out)
    assert kernels.calls == [], "nothing ran"
    assert (planner._cached_module, planner._sm_scale) == (kernels, scale)
    for cache, own in ((second, 0.5), (first, 0.25)):
        kernel.run(*cache, own)
        got, expected = kernels.calls.pop(), order(q, *cache, own, out)
        for one, other in zip(got, expected, strict=True):
            assert one is other or (isinstance(one, float) and one == other)


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (lambda q, keys, values, scale, out: (q, keys.clone(), values, scale, out), "the keys .* 0 times"),
        (lambda q, keys, values, scale, out: (q, keys, values, values, scale, out), "the values .* 2 times"),
        (lambda q, keys, values, scale, out: (q, keys, values, scale * 2, out), "the scale .* 0 times"),
    ],
    ids=["a copy of the keys", "the values twice", "a scale of its own"],
)
def test_a_version_that_passes_something_else_is_refused_and_left_as_it_was(order: Order, words: str) -> None:
    q, out, keys, values = tensors(4)
    planner = Planner(order)
    with pytest.raises(RuntimeError, match=f"this flashinfer passes {words}, not once"):
        frozen(planner, q, (keys, values), out)
    assert isinstance(planner._cached_module, Kernels)
    assert type(planner._sm_scale) is float


def test_pages_are_listed_as_far_as_a_sequence_has_tokens() -> None:
    lists = PageLists.of(torch.tensor([[3, 4], [5, 6], [7, 0]]), torch.tensor([17, 5, 16]), 16)
    assert lists.indptr.tolist() == [0, 2, 3, 4]
    assert lists.indices.tolist() == [3, 4, 5, 7]
    assert lists.last.tolist() == [1, 5, 16]
    assert lists.lengths.tolist() == [17, 5, 16]
