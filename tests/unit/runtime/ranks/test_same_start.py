"""What ranks do alike at a start though each measures for itself, and how one that cannot ends all of them."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from graphpod_policy import ExitCode, Policy
from graphpod_runtime.base.errors import CaptureOutOfMemory, CompileFailed, GraphError
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.shapes import ModelShape
from graphpod_runtime.cache.kv import cache_dtype, page_bytes
from graphpod_runtime.compiled.cache import CompileCache
from graphpod_runtime.compiled.source_comparison import COUNTS, MANY_ON_CPU, prove
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.start import kv_sizing
from graphpod_runtime.engine.start.device import Host, SharedPlace
from graphpod_runtime.ranks.agreement import ALONE, RankFailed, computing_together
from tests.unit.runtime.conftest import engine_config

FREE = 2_000_000


class Thread:
    """One of two ranks in threads."""

    count = 2

    def __init__(self, rank: int, meeting: threading.Barrier, said: list[int]) -> None:
        self.rank, self._meeting, self._said = rank, meeting, said
        self.votes = 0

    def least(self, value: int) -> int:
        return -self.most(-value)

    def most(self, value: int) -> int:
        self.votes += 1
        self._said[self.rank] = value
        self._meeting.wait(10)
        most = max(self._said)
        self._meeting.wait(10)
        return most

    def gathered(self, values: Sequence[int]) -> list[list[int]]:
        raise NotImplementedError("no start of these tests ends")

    @contextmanager
    def agreed(self) -> Iterator[None]:
        own: GraphError | None = None
        try:
            yield
        except GraphError as error:
            own = error
        if self.most(int(own is not None)):
            raise own or CompileFailed("the other rank")


class Gpu(Host):
    """Of FREE bytes, of which a cache takes `more` than its pages need."""

    def __init__(self, page: int, more: int) -> None:
        self._page, self._more = page, more
        self.taken = 0

    def available_bytes(self) -> int:
        return FREE - self.taken

    def peak_of(self, run: Callable[[], object]) -> int:
        return 0

    def allocate(self, pages: int) -> int:
        self.taken = pages * self._page + self._more
        return pages


def test_ranks_have_the_same_pages_though_their_drivers_take_different_memory(llama_folder: Path) -> None:
    """A page that one lacks cannot be used, and a vote that one lacks is waited for in vain."""
    runner = Runner(engine_config(llama_folder, Policy.Disabled, Policy.Disabled), lambda report: None)
    runner.start()
    shape: ModelShape = runner.engine.model.shape
    config = engine_config(llama_folder, Policy.Disabled, Policy.Disabled, kv_cache_bytes=None)
    page = page_bytes(shape, config.page_size, cache_dtype(config))
    meeting, said, made = threading.Barrier(2), [0, 0], [0, 0]
    ranks = [Thread(rank, meeting, said) for rank in range(2)]

    def size(rank: int, decode_bytes: int, more: int) -> None:
        gpu = Gpu(page, more)
        place = SharedPlace(gpu, ranks[rank])
        made[rank] = kv_sizing.cache(config, 8, shape, place, gpu.allocate, lambda: None, decode_bytes, {}, ranks[rank])

    threads = [threading.Thread(target=size, args=each) for each in ((0, 500_000, 0), (1, 700_000, 3 * page))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert made[0] == made[1] > 0
    assert made[0] * page <= FREE - 700_000 - 3 * page
    assert ranks[0].votes == ranks[1].votes


def test_one_of_several_that_fails_among_collectives_ends_its_start_by_name() -> None:
    with pytest.raises(CaptureOutOfMemory), computing_together(ALONE):
        raise CaptureOutOfMemory("full")
    second = Thread(1, threading.Barrier(2), [0, 0])
    with pytest.raises(RankFailed, match=r"rank 1 of 2 .*: full") as caught, computing_together(second):
        raise CaptureOutOfMemory("full")
    assert caught.value.code is ExitCode.CaptureOutOfMemory
    assert isinstance(caught.value, StartFailure)


def twice(x: Tensor) -> Tensor:
    return x * 2


@pytest.mark.parametrize("failing", [(1,), (0, 1)])
def test_a_function_that_a_rank_cannot_compile_no_rank_has_and_none_is_left_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: tuple[int, ...]
) -> None:
    """So that all of them go on uncompiled."""
    meeting, said = threading.Barrier(2), [0, 0]
    raised: dict[int, str] = {}

    def one(rank: int) -> None:
        ranks, ready = Thread(rank, meeting, said), list[str]()
        together = partial(computing_together, ranks)
        cache = CompileCache(tmp_path, torch.device("cpu"), ready.append, ranks.agreed, together)
        monkeypatch.setattr(
            cache, "_run", fails if rank in failing else lambda *arguments: lambda given: (given[0] * 2,)
        )
        try:
            cache.code("twice", "twice", twice, (torch.zeros(2, 8),), (0,))
        except CompileFailed as error:
            raised[rank] = str(error)
        assert ready == []

    def fails(*arguments: object) -> None:
        raise KeyError("no compiler")

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    own = "twice cannot be compiled: KeyError: 'no compiler'"
    assert raised == {rank: own if rank in failing else "the other rank" for rank in range(2)}


def test_a_stage_of_fewer_pieces_votes_as_often_as_one_of_more(tmp_path: Path) -> None:
    ranks, ended = list[Thread](), list[int]()
    meeting, said = threading.Barrier(2), [0, 0]

    def one(rank: int, pieces: int) -> None:
        ranks.append(own := Thread(rank, meeting, said))
        alike, together = own.agreed, partial(computing_together, own)

        def ready(name: str) -> None:
            own.most(0)

        cache = CompileCache(tmp_path, torch.device("cpu"), ready, alike, together, own.most)
        cache._run = lambda *arguments: lambda given: (given[0] * 2,)  # type: ignore[method-assign]
        with cache.as_many("twice", pieces):
            for _ in range(pieces):
                cache.code("twice", "twice", twice, (torch.zeros(2, 8),), (0,))
        ended.append(rank)

    threads = [threading.Thread(target=one, args=arguments) for arguments in ((0, 3), (1, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(ended) == [0, 1]
    assert ranks[0].votes == ranks[1].votes == 10


def test_a_function_that_fails_where_ranks_compute_together_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others wait in what it was to compute with them."""

    def fails(given: list[Tensor]) -> None:
        raise KeyError("no kernel")

    ranks = Thread(1, threading.Barrier(1), [0, 0])
    cache = CompileCache(tmp_path, torch.device("cpu"), together=partial(computing_together, ranks))
    monkeypatch.setattr(cache, "_run", lambda *arguments: fails)
    with pytest.raises(RankFailed, match=r"rank 1 of 2 .*: twice cannot be compiled: KeyError") as caught:
        cache.code("twice", "twice", twice, (torch.zeros(2, 8),), (0,))
    assert caught.value.code is ExitCode.CompileFailed


def test_a_result_that_differs_at_a_few_rows_is_judged_when_all_have_been_computed() -> None:
    """The other ranks go on to the next number of rows."""
    counts: list[int] = []

    def code(given: list[Tensor]) -> tuple[Tensor, ...]:
        counts.append(len(given[0]))
        return (given[0] * 3,)

    with pytest.raises(CompileFailed, match="with 1 rows, result 0 differs"):
        prove("twice", code, twice, (torch.zeros(2, 8),), (0,))
    assert counts == [*COUNTS, MANY_ON_CPU]
