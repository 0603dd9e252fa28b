"""What ranks do alike at a start though each measures for itself, and how one that cannot ends all of them."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from graphpod_policy import ExitCode, Policy
from graphpod_runtime.base.errors import CaptureOutOfMemory, CompileFailed
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.shapes import ModelShape
from graphpod_runtime.cache.kv import cache_dtype, page_bytes
from graphpod_runtime.compiled.cache import CompileCache
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

    def agreed(self) -> AbstractContextManager[None]:
        return nullcontext()


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


def test_a_function_that_one_of_several_ranks_cannot_compile_ends_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise KeyError("no compiler")

    def twice(x: Tensor) -> Tensor:
        return x * 2

    monkeypatch.setattr("graphpod_runtime.compiled.cache.write_package", refuse)
    ready: list[str] = []
    ranks = Thread(1, threading.Barrier(2), [0, 0])
    several = CompileCache(tmp_path, torch.device("cpu"), ready.append, partial(computing_together, ranks))
    with pytest.raises(RankFailed, match=r"rank 1 of 2 .*: twice cannot be compiled: KeyError") as caught:
        several.code("twice", "twice", twice, (torch.zeros(2, 8),), (0,))
    assert caught.value.code is ExitCode.CompileFailed
    assert (ready, ranks.votes) == ([], 0)
    with pytest.raises(CompileFailed, match="twice cannot be compiled"):
        CompileCache(tmp_path, torch.device("cpu")).code("twice", "twice", twice, (torch.zeros(2, 8),), (0,))
