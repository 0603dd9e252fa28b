"""What a pass keeps of flashinfer's calls: found wherever a version passes it, refused where it cannot be found."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from graphpod_runtime.attention.flashinfer import Launches, PageLists, StepLists, StepPlan, frozen
from graphpod_runtime.base.errors import SelfCheckFailed
from graphpod_runtime.graphs.buffers import Buffers, Slot

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


def test_a_plan_with_another_launch_than_the_captured_one_is_refused() -> None:
    launches = Launches()
    for size, launch in ((4, (64, 4, 0, 16, 1)), (8, (64, 8, 0, 16, 1)), (4, (64, 4, 0, 16, 1))):
        launches.same(size, launch)
    words = (
        r"decode size 8: flashinfer planned the launch \[64, 8, 0, 16, 0\] for a graph that holds \[64, 8, 0, 16, 1\]"
    )
    with pytest.raises(SelfCheckFailed, match=words):
        launches.same(8, [64, 8, 0, 16, 0])
    launches.same(8, (64, 8, 0, 16, 1))
    launches.forget()
    launches.same(8, (64, 8, 0, 16, 0))


class PlanningKernels:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def plan(self, *arguments: Any) -> list[int]:
        self.calls.append(arguments)
        return [64, len(self.calls)]


class StepPlanner:
    """Plans as flashinfer's wrapper does: by the kernels, or by what stands in their place."""

    def __init__(self, *, copies: bool = False) -> None:
        self.kernels = PlanningKernels()
        self._cached_module: Any = None
        self._jit_module: Any = None
        self._copies = copies

    def plan(self, staging: Tensor, lists: PageLists) -> None:
        self._cached_module = self.kernels if self._jit_module is None else self._jit_module
        lengths = lists.lengths.clone() if self._copies else lists.lengths
        self._cached_module.plan("workspace", staging, lists.indptr, lengths, 4, False)


def page_lists(lengths: list[int], rows: int = 0) -> PageLists:
    return PageLists.of(torch.tensor([[3, 4], [5, 6]]), torch.tensor(lengths), 16, rows)


def test_later_steps_are_planned_by_the_kernels_own_planner_with_what_the_first_was() -> None:
    planner, (one, other) = StepPlanner(), tensors(2)
    first, later = page_lists([16, 5]), page_lists([17, 6])
    plan = StepPlan.of(planner, one, first, lambda: planner.plan(one, first))
    assert (planner._jit_module, planner._cached_module) == (None, planner.kernels)
    planner.kernels.calls.clear()
    assert list(plan.launch(other, later)) == [64, 1]
    ((workspace, staging, indptr, lengths, *rest),) = planner.kernels.calls
    assert (workspace, rest) == ("workspace", [4, False])
    assert staging is other
    assert indptr is later.indptr
    assert lengths is later.lengths


def test_a_version_that_plans_from_something_else_is_refused_and_left_as_it_was() -> None:
    planner, (one,), lists = StepPlanner(copies=True), tensors(1), page_lists([16, 5])
    with pytest.raises(RuntimeError, match="passes the lengths of a layer or step to its kernels 0 times"):
        StepPlan.of(planner, one, lists, lambda: planner.plan(one, lists))
    assert (planner._jit_module, planner._cached_module) == (None, planner.kernels)


def test_rows_that_pad_a_step_attend_to_one_token_of_the_scratch_page() -> None:
    lists = page_lists([17, 5], rows=4)
    assert lists.indptr.tolist() == [0, 2, 3, 4, 5]
    assert lists.indices.tolist() == [3, 4, 5, 0, 0]
    assert lists.last.tolist() == [1, 5, 1, 1]
    assert lists.lengths.tolist() == [17, 5, 1, 1]


@pytest.mark.parametrize("size", [2, 4, 33])
def test_one_copy_brings_the_lists_of_a_step_of_any_size(size: int) -> None:
    static = Buffers(Slot("lists", StepLists.numbers(33, 33 * 2), (), torch.int32, padding=None))
    there, lists = StepLists.of(static, size, 2), page_lists([17, 5], rows=size)
    there.load(lists, torch.full((4 * StepLists.numbers(33, 33 * 2),), 9, dtype=torch.uint8))
    assert there.indptr.tolist() == lists.indptr.tolist()
    assert there.last.tolist() == lists.last.tolist()
    assert there.indices[: len(lists.indices)].tolist() == lists.indices.tolist()
    assert there.indices.shape[0] == 2 * size, "room for all pages of all rows"
