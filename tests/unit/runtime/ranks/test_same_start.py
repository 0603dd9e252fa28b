"""What ranks do alike at a start though each measures for itself, and how one that cannot ends all of them."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as distributed
from torch import Tensor

from graphpod_policy import ExitCode, Policy
from graphpod_runtime.base.errors import CaptureFailed, CaptureOutOfMemory, CompileFailed, GraphError
from graphpod_runtime.base.failure import RankFailed, StartFailure
from graphpod_runtime.base.shapes import ModelShape
from graphpod_runtime.cache.kv import cache_dtype, page_bytes
from graphpod_runtime.compiled.cache import CompileCache
from graphpod_runtime.compiled.source_comparison import COUNTS, MANY_ON_CPU, prove
from graphpod_runtime.distributed import collectives, connection
from graphpod_runtime.distributed.agreement import ALONE, Alone, Together, computing_together
from graphpod_runtime.distributed.collectives import sum_of_ranks, working_alike
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.start import kv_sizing
from graphpod_runtime.engine.start.device import Host, SharedPlace, require_alike
from tests.unit.runtime.conftest import engine_config

FREE = 2_000_000


class Meeting:
    """Where two ranks in threads vote."""

    def __init__(self, ranks: int = 2) -> None:
        self.barrier = threading.Barrier(ranks)
        self.said = [0, 0]
        self.words = ""


class Thread(Together):
    """One of two ranks in threads."""

    def __init__(self, rank: int, meeting: Meeting) -> None:
        super().__init__(rank, 2, None)
        self._meeting = meeting
        self.votes = 0

    def most(self, value: int) -> int:
        self.votes += 1
        self._meeting.said[self.rank] = value
        self._meeting.barrier.wait(10)
        most = max(self._meeting.said)
        self._meeting.barrier.wait(10)
        return most

    def _words(self, speaker: int, own: GraphError | None) -> str:
        if speaker == self.rank:
            self._meeting.words = f"rank {self.rank}: {own}"
        self._meeting.barrier.wait(10)
        return self._meeting.words


def in_threads(one: Callable[[int], None]) -> None:
    """Runs it as each of two ranks."""
    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)


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
    meeting, made = Meeting(), [0, 0]
    ranks = [Thread(rank, meeting) for rank in range(2)]

    def size(rank: int) -> None:
        decode_bytes, more = ((500_000, 0), (700_000, 3 * page))[rank]
        gpu = Gpu(page, more)
        place = SharedPlace(gpu, ranks[rank], len(ranks))
        made[rank] = kv_sizing.cache(config, 8, shape, place, gpu.allocate, lambda: None, decode_bytes, {}, ranks[rank])

    in_threads(size)
    assert made[0] == made[1] > 0
    assert made[0] * page <= FREE - 700_000 - 3 * page
    assert ranks[0].votes == ranks[1].votes


@pytest.mark.parametrize(("capabilities", "refused"), [(((9, 0), (9, 0)), False), (((9, 0), (8, 0)), True)])
def test_gpus_of_two_capabilities_are_refused_at_all_ranks_and_named(
    capabilities: tuple[tuple[int, int], ...], refused: bool
) -> None:
    """Two plans would have them wait for each other at different places."""
    names, said, failures = ("NVIDIA H100 PCIe", "NVIDIA A100-SXM4-80GB"), [list[int](), list[int]()], dict[int, str]()
    meeting = threading.Barrier(2)

    class Gathering(Alone):
        def __init__(self, rank: int) -> None:
            self.rank = rank

        def gathered(self, values: Sequence[int]) -> list[list[int]]:
            said[self.rank] = list(values)
            meeting.wait(10)
            return said

    def one(rank: int) -> None:
        try:
            require_alike(Gathering(rank), capabilities[rank], names[rank])
        except StartFailure as failure:
            failures[rank] = failure.message

    in_threads(one)
    kinds = "the ranks have GPUs of several compute capabilities: NVIDIA A100-SXM4-80GB (8.0), NVIDIA H100 PCIe (9.0); "
    assert [failures[rank].startswith(kinds) for rank in sorted(failures)] == ([True, True] if refused else [])


def test_one_of_several_that_fails_among_collectives_ends_its_start_by_name() -> None:
    with pytest.raises(CaptureOutOfMemory), computing_together(ALONE):
        raise CaptureOutOfMemory("full")
    second = Thread(1, Meeting())
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
    meeting, ready = Meeting(), list[str]()
    raised: dict[int, str] = {}

    def one(rank: int) -> None:
        ranks = Thread(rank, meeting)
        together = partial(computing_together, ranks)
        cache = CompileCache(tmp_path, torch.device("cpu"), ready.append, ranks.agreed, together)
        monkeypatch.setattr(
            cache, "_run", fails if rank in failing else lambda *arguments: lambda given: (given[0] * 2,)
        )
        try:
            cache.code("twice", "twice", twice, (torch.zeros(2, 8),), (0,))
        except CompileFailed as error:
            raised[rank] = str(error)

    def fails(*arguments: object) -> None:
        raise KeyError("no compiler")

    in_threads(one)
    said = f"rank {failing[0]}: twice cannot be compiled: KeyError: 'no compiler'"
    assert raised == {0: said, 1: said}
    assert ready == []


@pytest.mark.parametrize("within", [True, False])
def test_ranks_that_have_agreed_within_do_not_vote_again_wherever_one_of_them_failed(within: bool) -> None:
    """A trace fails before the piece in which the others vote: votes would be off by one from then on."""
    meeting, raised = Meeting(), dict[int, str]()
    ranks = [Thread(rank, meeting) for rank in range(2)]

    def prepare(rank: int) -> None:
        if rank == 1 and not within:
            raise CaptureFailed("no trace")
        with ranks[rank].agreed():
            if rank == 1:
                raise CaptureFailed("no piece")

    def one(rank: int) -> None:
        try:
            with ranks[rank].agreed():
                prepare(rank)
        except CaptureFailed as error:
            raised[rank] = str(error)

    in_threads(one)
    said = "rank 1: no piece" if within else "rank 1: no trace"
    assert raised == {0: said, 1: said}
    assert [rank.votes for rank in ranks] == [1, 1]


def test_a_rank_without_a_trace_is_heard_by_one_that_counts_its_pieces(tmp_path: Path) -> None:
    """Its vote must not pass for a number of pieces: the ranks would wait for each other at different places."""
    meeting, raised, counted = Meeting(), dict[int, str](), list[int]()
    ranks = [Thread(rank, meeting) for rank in range(2)]

    def one(rank: int) -> None:
        own = ranks[rank]
        cache = CompileCache(tmp_path, torch.device("cpu"), alike=own.agreed, most=own.most)
        try:
            with own.agreed():
                if rank == 1:
                    raise CaptureFailed("no trace")
                with cache.as_many("piece", 3):
                    counted.append(rank)
        except CaptureFailed as error:
            raised[rank] = str(error)

    in_threads(one)
    assert raised == {0: "rank 1: no trace", 1: "rank 1: no trace"}
    assert counted == []
    assert [rank.votes for rank in ranks] == [1, 1]


def test_ranks_that_work_alike_exchange_nothing_on_any_device(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(distributed, "all_reduce", lambda tensor, **more: asked.append(tensor.device.type))
    x = torch.ones(2, 2)
    with working_alike(ALONE):
        assert collectives._silent == {"cpu", "cuda"}
        sum_of_ranks(x)
    assert asked == []
    sum_of_ranks(x)
    assert asked == ["cpu"]


def test_a_stage_of_fewer_pieces_votes_as_often_as_one_of_more(tmp_path: Path) -> None:
    ranks, ended = list[Thread](), list[int]()
    meeting = Meeting()

    def one(rank: int) -> None:
        pieces = (3, 1)[rank]
        ranks.append(own := Thread(rank, meeting))
        alike, together = own.agreed, partial(computing_together, own)

        def ready(name: str) -> None:
            own.most(0)

        cache = CompileCache(tmp_path, torch.device("cpu"), ready, alike, together, own.most)
        cache._run = lambda *arguments: lambda given: (given[0] * 2,)  # type: ignore[method-assign]
        with cache.as_many("twice", pieces):
            for _ in range(pieces):
                cache.code("twice", "twice", twice, (torch.zeros(2, 8),), (0,))
        ended.append(rank)

    in_threads(one)
    assert sorted(ended) == [0, 1]
    assert ranks[0].votes == ranks[1].votes == 11


def test_a_function_that_fails_where_ranks_compute_together_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others wait in what it was to compute with them."""

    def fails(given: list[Tensor]) -> None:
        raise KeyError("no kernel")

    ranks = Thread(1, Meeting(1))
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


def test_only_the_first_engine_of_a_process_shares_memory_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_met", False)
    asked: list[int] = []
    alike: Any = SimpleNamespace(least=lambda mine: asked.append(mine) or mine)
    newer: Any = SimpleNamespace(least=lambda mine: False)
    gpu = torch.device("cuda", 0)
    assert not connection._shares_memory(torch.device("cpu"), alike)
    assert connection._shares_memory(gpu, alike)
    assert not connection._shares_memory(gpu, alike), "the other ranks of a later engine are new processes"
    assert asked == [True, False], "ranks vote, for one of them may have met others before"
    monkeypatch.setattr(connection, "_met", False)
    assert not connection._shares_memory(gpu, newer)
