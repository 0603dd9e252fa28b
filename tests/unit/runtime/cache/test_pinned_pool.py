"""A pinned pool's pages come back bit for bit, with neighbouring slots in one copy. Streams are stood in for here; real
ones run in tests/gpu."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from graphpod_runtime.base.shapes import ModelShape
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.cache.pinned_pool import PinnedPool, out_of_memory
from tests.unit.runtime.cache.test_kv import SHAPE

PAGES, SIZE = 40, 4


class Line:
    """A stream on which everything is done at once."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.waits: list[object] = []

    def wait_stream(self, other: "Line") -> None:
        self.waits.append(other)

    def wait_event(self, event: object) -> None:
        self.waits.append(event)


class Event:
    """A point of it, by a clock that goes on by a second at each."""

    clock = 0.0

    def __init__(self, **_: Any) -> None:
        self.at: float | None = None

    def record(self) -> None:
        Event.clock += 1
        self.at = Event.clock

    def query(self) -> bool:
        return self.at is not None

    def synchronize(self) -> None:
        assert self.at is not None

    def elapsed_time(self, end: "Event") -> float:
        assert self.at is not None
        assert end.at is not None
        return 1000 * (end.at - self.at)


class Unpinned(PinnedPool):
    """Its slabs are plain memory."""

    def _pin(self, slots: int) -> None:
        self._slabs.append(torch.zeros((slots, *self._slot), dtype=self._word))
        self._firsts.append(self.slots)
        self.slots += slots


@pytest.fixture(autouse=True)
def current(monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    """The stream of passes."""
    line = Line()
    monkeypatch.setattr(torch.cuda, "Stream", Line)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: line)
    return line


def filled(shape: ModelShape, dtype: torch.dtype) -> KvCache:
    cache = KvCache.allocate(shape, PAGES, SIZE, dtype)
    for seed, half in enumerate((cache.keys, cache.values)):
        words = half.view(torch.uint8)
        words.copy_(torch.randint(0, 256, words.shape, generator=torch.Generator().manual_seed(seed)))
    return cache


def contents(cache: KvCache, pages: list[int]) -> list[torch.Tensor]:
    return [half.view(torch.uint8)[:, pages].clone() for half in (cache.keys, cache.values)]


def equal(these: list[torch.Tensor], those: list[torch.Tensor]) -> bool:
    return all(torch.equal(*pair) for pair in zip(these, those, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
def test_pages_come_back_bit_for_bit_into_others_and_nothing_else_changes(dtype: torch.dtype) -> None:
    cache = filled(SHAPE, dtype)
    one_page = sum(half[:, 0].nbytes for half in (cache.keys, cache.values))
    pool = Unpinned(cache, 30 * one_page, lambda: 1 << 40, staging_bytes=7 * one_page)
    pool._allocate()
    assert (pool.page_bytes, pool.at_once, pool.slots) == (one_page, 7, 30)
    left, pages, slots = contents(cache, [3, 9, 4, 39, 1, 7, 8]), [3, 9, 4, 39, 1, 7, 8], [12, 13, 14, 15, 16, 17, 2]
    pool.store(dict(zip(slots, pages, strict=True)))
    cache.keys.view(torch.uint8).fill_(7)
    cache.values.view(torch.uint8).fill_(7)
    into = [20, 3, 21, 5, 9, 30, 31]
    pool.load(slots, into)
    assert equal(contents(cache, into), left)
    others = [page for page in range(PAGES) if page not in into]
    assert all(bool((part == 7).all()) for part in contents(cache, others))


def test_slots_that_follow_each_other_are_one_copy_as_far_as_a_slab_goes() -> None:
    cache = filled(SHAPE, torch.float32)
    pool = Unpinned(cache, 30 * 1 << 20, lambda: 1 << 40)
    pool._allocate()
    runs = [(first, end, len(place)) for place, first, end in pool._runs([3, 4, 5, 14, 15, 16, 17, 9, 11, 12])]
    assert runs == [(0, 3, 3), (3, 5, 2), (5, 7, 2), (7, 8, 1), (8, 10, 2)], "16 begins the second slab"


def test_a_load_waits_for_what_it_is_behind_and_a_pass_for_what_it_reads(current: Line) -> None:
    cache = filled(SHAPE, torch.float32)
    pool = Unpinned(cache, 1 << 20, lambda: 1 << 40)
    stored = pool.store({0: 5})
    assert pool._stores.stream.waits == [current]
    move = pool.load([0], [6], [stored.left, stored.kept])
    assert pool._loads.stream.waits == [current, stored.left.event, stored.kept.event]  # type: ignore[attr-defined]
    assert current.waits == []
    pool.wait([move])
    assert current.waits == [move.event]
    pool.wait_for_all()
    assert current.waits[1:] == [pool._stores.stream, pool._loads.stream]


def test_a_measurement_moves_real_pages_changes_none_and_does_not_count() -> None:
    cache = filled(SHAPE, torch.float32)
    pool, before = Unpinned(cache, 1 << 20, lambda: 1 << 40), contents(cache, list(range(PAGES)))
    loads: list[tuple[int, ...]] = []
    load = pool.load

    def noted(slots: Any, pages: Any, behind: Any = ()) -> Any:
        loads.append(tuple(pages))
        return load(slots, pages, behind)

    pool.load = noted  # type: ignore[method-assign]
    pool.measured()
    assert {(1,), tuple(range(1, 17))} == set(loads)
    assert equal(contents(cache, list(range(PAGES))), before)
    assert (pool.store_seconds, pool.load_seconds) == (0, 0)
    pool.load([3], [4])
    pool.store({3: 4})
    assert (pool.store_seconds, pool.load_seconds) == (2, 1), "the events of a store: its beginning, left, its end"


def test_only_memory_that_is_missing_is_a_failure_of_the_tier() -> None:
    missing, broken = torch.AcceleratorError("CUDA error: out of memory"), torch.AcceleratorError("CUDA error: assert")
    missing.error_code, broken.error_code = 2, 710  # type: ignore[attr-defined]
    errors = (missing, torch.OutOfMemoryError("CUDA out of memory"), MemoryError(), broken, RuntimeError("a bug"))
    assert [out_of_memory(error) for error in errors] == [True, True, True, False, False]
