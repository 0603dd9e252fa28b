"""The self-check runs the captured code of the two largest sizes of a prefill ladder, and of each other size only where
that rounds by its number of rows. It finds whatever is wrong in a replay of any size, as if all had run.
"""

import dataclasses
import functools
import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from graphpod_policy import Phase
from graphpod_runtime.base.errors import SelfCheckFailed
from graphpod_runtime.base.inputs import Inputs
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.engine.capture import references as selfcheck_references
from graphpod_runtime.engine.capture import selfcheck
from graphpod_runtime.engine.capture.selfcheck import Checker
from tests.contracts.toy import SHAPE

SIZES = (4, 8, 12, 16, 24, 32, 40)
PAGE = 4


@pytest.fixture(autouse=True, params=[1, 16])
def together(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Sizes that are compared before the host looks at what was found."""
    monkeypatch.setattr(sys.modules[__name__], "Checker", functools.partial(Checker, together=request.param))
    return int(request.param)


@dataclasses.dataclass
class Toy:
    """A Subject whose row is its token and position, in its result and in the cache; a fault of `size` in its replays.
    A row is off by `rounding` times the size."""

    cache: KvCache
    fault: str = ""
    wrong: int = 12
    rounding: float = 0.0
    sizes: tuple[int, ...] = SIZES
    compiled_trace: bool = False
    uncaptured_sizes: list[int] = dataclasses.field(default_factory=list)
    buffer: Tensor = dataclasses.field(default_factory=lambda: torch.zeros(64, 2))

    def replay(self, inputs: Inputs, size: int) -> tuple[Tensor, ...]:
        fault = self.fault if size == self.wrong else ""
        if fault == "stale result":
            self._write(inputs, inputs.count)
            return (self.buffer[: inputs.count],)
        self._write(inputs, inputs.count - (fault == "key not written"))
        if fault == "key written behind the end":
            self.cache.keys.flatten(1, 2)[:, inputs.slots[-1] + 1] = 5.0
        if fault == "key of an earlier row":
            self.cache.values.flatten(1, 2)[-1, inputs.slots[0]] += 1e-3
        written = SIZES[SIZES.index(size) - 1] if fault == "stale last rows" else inputs.count
        self.buffer[:written] = self._rows(inputs, size)[:written]
        if fault == "a bit":
            self.buffer[inputs.count - 1, 1] += 1e-3
        return (self.buffer[: inputs.count],)

    def uncaptured(self, inputs: Inputs, size: int) -> tuple[Tensor, ...]:
        self.uncaptured_sizes.append(size)
        self._write(inputs, inputs.count)
        self.buffer[: inputs.count] = self._rows(inputs, size)
        return (self.buffer[: inputs.count],)

    def eager(self, inputs: Inputs, size: int) -> tuple[Tensor, ...]:
        # What padding does: the allowance of the comparison with plain eager is four times as much.
        return (self._rows(inputs, 0) + (size > inputs.count),)

    traced = eager

    def poison_results(self, size: int) -> None:
        """A buffer's old values stay there."""

    def _rows(self, inputs: Inputs, size: int) -> Tensor:
        return torch.stack((inputs.tokens, inputs.positions), 1).float() + self.rounding * size

    def _write(self, inputs: Inputs, rows: int) -> None:
        for half in self.cache.halves:
            cells = half.flatten(1, 2)[:, inputs.slots[:rows]]
            half.flatten(1, 2)[:, inputs.slots[:rows]] = inputs.tokens[None, :rows, None, None].expand_as(cells).float()


def _cache(pages: int = 400) -> KvCache:
    return KvCache.allocate(SHAPE, pages, PAGE, torch.float32)


def _checked(subject: Toy, context: int = 64) -> list[int]:
    return list(Checker(Phase.Prefill, subject, subject.cache, vocab=1000, max_model_len=context).sizes())


@pytest.mark.parametrize("context", [64, 18, 10])
def test_two_uncaptured_runs_answer_for_a_ladder_that_rounds_alike(context: int) -> None:
    """Also where rows are of many sequences."""
    subject = Toy(_cache())

    assert _checked(subject, context) == list(SIZES)

    assert subject.uncaptured_sizes == [40, 32]


def test_a_size_that_rounds_otherwise_has_an_uncaptured_run_of_its_own() -> None:
    subject = Toy(_cache(), rounding=1e-3)

    assert _checked(subject) == list(SIZES)

    assert subject.uncaptured_sizes == [40, 32, *SIZES[:-2]], "those two are compared with the very run of their size"


def test_a_cache_without_room_for_references_has_an_uncaptured_run_of_every_size() -> None:
    # 40 rows and the past of one sequence: 12 pages, four times.
    few, enough = Toy(_cache(48)), Toy(_cache(49))

    assert (_checked(few), _checked(enough)) == (list(SIZES), list(SIZES))

    assert few.uncaptured_sizes == list(SIZES)
    assert enough.uncaptured_sizes == [40, 32]


def test_a_ladder_of_two_sizes_has_both() -> None:
    subject = Toy(_cache(), sizes=(4, 8))

    assert _checked(subject) == [4, 8]

    assert subject.uncaptured_sizes == [4, 8]


@pytest.mark.parametrize("rounding", [0.0, 1e-3])
@pytest.mark.parametrize("wrong", [12, 24, 32, 40])
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("a bit", "differ from the uncaptured code"),
        ("stale result", "differ from the uncaptured code"),
        ("key not written", "other KV pages"),
        ("key written behind the end", "other KV pages"),
        ("key of an earlier row", "other KV pages"),
    ],
)
@pytest.mark.parametrize("pages", [400, 24], ids=["kept in the cache", "kept aside"])
def test_a_fault_of_one_size_is_found(fault: str, message: str, wrong: int, rounding: float, pages: int) -> None:
    subject = Toy(_cache(pages), fault, wrong, rounding)

    with pytest.raises(SelfCheckFailed, match=f"size {wrong} with .*{message}"):
        _checked(subject)


@pytest.mark.parametrize("context", [64, 10])
@pytest.mark.parametrize("wrong", [16, 32, 40])
def test_rows_that_a_reference_left_are_not_those_that_a_replay_should_have_written(wrong: int, context: int) -> None:
    """A graph that computes as many rows as the next smaller one finds a reference's in the others."""
    subject = Toy(_cache(), "stale last rows", wrong)

    with pytest.raises(SelfCheckFailed, match=f"size {wrong} with .*differ from the uncaptured code"):
        _checked(subject, context)


def test_what_a_replay_writes_over_a_reference_is_no_fault_that_it_hides() -> None:
    """Pages that are no sequence's of the replay: an uncaptured run of the size decides."""
    cache = _cache()

    class Overwriting(Toy):
        def replay(self, inputs: Inputs, size: int) -> tuple[Tensor, ...]:
            if size == 12:
                self.cache.keys[:, 14:37] = 3.0
            return super().replay(inputs, size)

    subject = Overwriting(cache)

    assert _checked(subject) == list(SIZES)

    assert subject.uncaptured_sizes[:3] == [40, 32, 12]


@pytest.mark.parametrize(("pages", "copies"), [(24, 1), (25, 0)])
def test_what_a_replay_wrote_takes_memory_of_its_own_only_where_the_cache_has_not_twice_its_pages(
    pages: int, copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = _cache(pages)
    taken = list[int]()
    take = KvCache.take
    monkeypatch.setattr(KvCache, "take", lambda cache, pages: (taken.append(len(pages)), take(cache, pages))[1])

    assert _checked(Toy(cache)) == list(SIZES)

    # 40 rows and the past of one sequence: 12 pages.
    assert taken.count(12) == copies


class Waits(TorchDispatchMode):
    """Counts the calls for which a host would wait for a device."""

    count = 0

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += call.overloadpacket in (torch.ops.aten._local_scalar_dense, torch.ops.aten.equal)
        return call(*args, **(kwargs or {}))


@pytest.mark.parametrize("rounding", [0.0, 1e-3])
def test_the_host_waits_once_for_all_sizes_that_are_compared_together_and_once_for_each_that_rounds_otherwise(
    together: int, rounding: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    right = selfcheck.read

    def counted(found: list[selfcheck.Found]) -> Any:
        reads.append(len(found))
        return right(found)

    monkeypatch.setattr(selfcheck, "read", counted)
    subject = Toy(_cache(), rounding=rounding)
    with Waits() as waits:
        _checked(subject)
    rounds_otherwise = len(SIZES) - selfcheck_references.BOOKS if rounding else 0
    if together == 1:
        assert (len(reads), waits.count) == (len(SIZES), len(SIZES)), "the answer of each reference is looked at"
    else:
        assert (len(reads), waits.count) == (1 + rounds_otherwise, 0)
