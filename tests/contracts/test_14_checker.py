"""The self-check over graphs that are made up: which differences it allows, which sizes it compares with what, and what
its inputs are like.
"""

import contextlib
import dataclasses
import functools
import sys

import pytest
import torch
from torch import Tensor

from graphpod_policy import Phase
from graphpod_runtime.base.errors import SelfCheckFailed
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.engine.capture.selfcheck import Checker
from tests.contracts.toy import SHAPE


@pytest.fixture(autouse=True, params=[1, 16])
def together(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Sizes that are compared before the host looks at what was found."""
    monkeypatch.setattr(sys.modules[__name__], "Checker", functools.partial(Checker, together=request.param))
    return int(request.param)


@dataclasses.dataclass(frozen=True)
class Rounding:
    """A Subject of one size: padding moves plain eager by `padding`; captured code and its replay are `off` from it."""

    padding: float
    off: float
    sizes: tuple[int, ...] = (8,)
    compiled_trace: bool = False

    def replay(self, inputs: Inputs, size: int) -> tuple[Tensor, ...]:
        return (torch.full((inputs.count, 4), 1 + self.off),)

    uncaptured = replay

    def eager(self, inputs: Inputs, size: int) -> tuple[Tensor, ...]:
        return (torch.full((inputs.count, 4), 1.0 if size == inputs.count else 1 + self.padding),)

    traced = eager

    def poison_results(self, size: int) -> None:
        """It has no buffers."""


@pytest.mark.parametrize(
    ("padding", "off", "right"), [(0.01, 0.03, True), (0.01, -0.03, True), (0.01, 0.05, False), (0.0, 1e-6, False)]
)
def test_a_replay_may_differ_from_plain_eager_by_four_times_what_padding_does(
    padding: float, off: float, right: bool
) -> None:
    cache = KvCache.allocate(SHAPE, 20, 4, torch.float32)
    checker = Checker(Phase.Prefill, Rounding(padding, off), cache, vocab=16, max_model_len=64)
    with contextlib.nullcontext() if right else pytest.raises(SelfCheckFailed, match="padding alone explains"):
        assert list(checker.sizes()) == [8]


class WrongAtTheTop(Rounding):
    """A Subject that is right but in its largest size."""

    def replay(self, inputs: Inputs, size: int) -> tuple[Tensor, ...]:
        return (torch.full((inputs.count, 4), 1.5 if size == self.sizes[-1] else 1.0),)

    uncaptured = replay


@pytest.mark.parametrize("phase", Phase)
def test_the_largest_size_meets_plain_eager(phase: Phase) -> None:
    """Graph and captured code agree on something wrong, in the largest of seven sizes only."""
    sizes = (1, 2, 4, 8, 12, 16, 24)
    cache = KvCache.allocate(SHAPE, 40, 4, torch.float32)
    checker = Checker(phase, WrongAtTheTop(0.01, 0.0, sizes), cache, vocab=16, max_model_len=64)
    checked = checker.sizes()
    assert [next(checked) for _ in sizes[:-1]] == list(sizes[:-1])
    with pytest.raises(SelfCheckFailed, match=f"{phase} size 24 with 23 rows: differs from plain eager"):
        next(checked)


@dataclasses.dataclass(frozen=True)
class Watched(Rounding):
    """A Subject that keeps what it was replayed on."""

    seen: list[Inputs] = dataclasses.field(default_factory=list)

    def replay(self, inputs: Inputs, size: int) -> tuple[Tensor, ...]:
        self.seen.append(inputs)
        return super().replay(inputs, size)

    uncaptured = replay


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("phase", Phase)
def test_every_replay_of_the_check_has_a_past_of_more_than_a_page(phase: Phase, page_size: int) -> None:
    cache = KvCache.allocate(SHAPE, 400, page_size, torch.float32)
    subject = Watched(0.01, 0.0, tuple(range(1, 24)))
    list(Checker(phase, subject, cache, vocab=16, max_model_len=64).sizes())
    assert subject.seen
    for inputs in subject.seen:
        past = inputs.lengths - inputs.starts.diff()
        assert int(past.max()) >= page_size
        assert torch.unique(inputs.tables[inputs.tables > 0]).numel() > 1


@dataclasses.dataclass(frozen=True)
class Unwritten(Rounding):
    """A Subject whose every result is 1, and whose graph writes all of them but those of the last row."""

    results: Tensor = dataclasses.field(default_factory=lambda: torch.ones(8, 4))

    def replay(self, inputs: Inputs, size: int) -> tuple[Tensor, ...]:
        self.results[: inputs.count - 1] = 1.0
        return (self.results[: inputs.count],)

    def uncaptured(self, inputs: Inputs, size: int) -> tuple[Tensor, ...]:
        self.results[: inputs.count] = 1.0
        return (self.results[: inputs.count],)

    def poison_results(self, size: int) -> None:
        self.results[:size] = torch.nan


def test_a_result_that_a_replay_does_not_write_is_caught_though_its_buffer_holds_the_right_one() -> None:
    cache = KvCache.allocate(SHAPE, 20, 4, torch.float32)
    checker = Checker(Phase.Prefill, Unwritten(0.0, 0.0), cache, vocab=16, max_model_len=64)
    with pytest.raises(SelfCheckFailed, match="4 of 28 elements of result 0 differ from the uncaptured code"):
        list(checker.sizes())


@pytest.mark.parametrize(("pages", "context", "longest"), [(400, 4096, 1200), (400, 64, 64), (120, 4096, 448)])
def test_a_decode_step_of_the_check_has_a_row_as_long_as_the_check_wants_where_there_is_room(
    pages: int, context: int, longest: int
) -> None:
    """A decode kernel that cuts long contexts into parts adds none up in a check of short ones."""
    cache = KvCache.allocate(SHAPE, pages + 1, 4, torch.float32)
    subject = Watched(0.01, 0.0, (1, 3, 8, 24))
    list(Checker(Phase.Decode, subject, cache, vocab=16, max_model_len=context, long_row=1200).sizes())
    assert {int(inputs.lengths[0]) for inputs in subject.seen if inputs.count == 3} == {longest}
    for inputs in subject.seen:
        assert all(length <= 16 for length in inputs.lengths[1:].tolist()), "the others are as they were"
        owned = inputs.tables[inputs.tables > 0]
        assert torch.unique(owned).numel() == owned.numel() <= pages
