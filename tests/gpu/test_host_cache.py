"""The host tier on a GPU: its streams keep the order that the CPU's tests stand in for, and texts stay the same."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphpod_policy import KvCacheDtype, Policy
from graphpod_policy.start.footprint import host_tier_bytes
from graphpod_runtime.base.shapes import ModelShape
from graphpod_runtime.cache.host_tier import HostCacheFailure, HostTier, LoadCosts
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.cache.page_packing import packing_for
from graphpod_runtime.cache.pinned_pool import CopyLine, PinnedPool
from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.schedule.sequence import Sequence
from tests.unit.runtime.cache.test_page_packing import packs_rightly
from tests.unit.runtime.conftest import random_prompts
from tests.unit.runtime.engine.test_host_cache import (  # noqa: F401
    always,
    rounds,
    test_a_page_that_was_not_clean_is_not_wiped_after_its_load,
    test_costs_are_measured_at_the_start,
    test_evicted_prefixes_are_loaded_and_texts_stay_the_same,
    test_metrics_name_the_tier_and_count_bytes_each_way,
    test_poison_spoils_neither_what_leaves_nor_what_comes,
)

MIB = 1 << 20
CUDA = torch.device("cuda", 0)
SHAPE = ModelShape("toy", 4, 64, 8, 4, 4, 64, 16, 64, 1e-5, 1e4, True, ())
PAGES, SIZE = 40, 4
LONG = 400_000_000
"""Cycles that a stream sleeps: some 0.2 s, in which everything else has long run."""


def pool_over(cache: KvCache, slots: int, at_once: int) -> PinnedPool:
    """All of it pinned."""
    one_page = sum(half[:, 0].nbytes for half in (cache.keys, cache.values))
    pool = PinnedPool(cache, slots * one_page, lambda: 1 << 40, staging_bytes=at_once * one_page)
    pool._allocate()
    assert (pool.slots, pool.at_once, pool.page_bytes) == (slots, at_once, one_page)
    return pool


def a_cache(dtype: torch.dtype = torch.bfloat16) -> KvCache:
    cache = KvCache.allocate(SHAPE, PAGES, SIZE, dtype, CUDA)
    for seed, half in enumerate((cache.keys, cache.values)):
        words = half.view(torch.uint8)
        words.copy_(torch.randint(0, 256, words.shape, generator=torch.Generator().manual_seed(seed)))
    return cache


def contents(cache: KvCache, pages: list[int]) -> list[torch.Tensor]:
    """On the host, in line with the passes."""
    return [half.view(torch.uint8)[:, pages].cpu() for half in (cache.keys, cache.values)]


def overwrite(cache: KvCache) -> None:
    """In line with the passes; the host does not wait."""
    for half in (cache.keys, cache.values):
        half.view(torch.uint8).fill_(7)


def equal(these: list[torch.Tensor], those: list[torch.Tensor]) -> bool:
    return all(torch.equal(*pair) for pair in zip(these, those, strict=True))


def sleep(line: CopyLine) -> None:
    with torch.cuda.stream(line.stream):
        torch.cuda._sleep(LONG)


@pytest.mark.parametrize("halves", [1, 2])
@pytest.mark.parametrize(
    ("word", "width"),
    [(torch.int64, 4096), (torch.int64, 1), (torch.int64, 1025), (torch.int32, 77), (torch.uint8, 4097)],
)
def test_one_kernel_packs_pages_of_any_width(word: torch.dtype, width: int, halves: int) -> None:
    packs_rightly(packing_for(CUDA), CUDA, word, width, halves)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
def test_pages_come_back_bit_for_bit_in_several_moves(dtype: torch.dtype) -> None:
    """Neighbouring slots and others, over the end of a slab; pages whose bytes leave while others come for them."""
    cache = a_cache(dtype)
    tier = HostTier(pool_over(cache, 30, at_once=4), LoadCosts(0, 0, 1), SIZE)
    pages, slots = [3, 9, 4, 39, 1, 7, 8, 20, 21], [12, 13, 14, 15, 16, 17, 2, 29, 0]
    left = contents(cache, pages)
    tier.store(dict(zip(slots, pages, strict=True)))
    tier.turn(everything=True)
    # A second store goes on while its pages are loaded: they are written only after they have left.
    others = [20, 3, 21, 5, 9, 30, 31, 10, 11]
    left_too = contents(cache, others)
    other_slots = [18, 19, 20, 21, 22, 23, 24, 25, 26]
    tier.store(dict(zip(other_slots, others, strict=True)))
    tier.load(slots, others)
    tier.join(tier.awaited(others))
    assert equal(contents(cache, others), left)
    overwrite(cache)
    tier.load(other_slots, pages)
    tier.join(tier.awaited(pages))
    assert equal(contents(cache, pages), left_too)
    untouched = [page for page in range(PAGES) if page not in pages]
    assert all(bool((part == 7).all()) for part in contents(cache, untouched))
    torch.cuda.synchronize()
    assert tier.copies.store_seconds > 0
    assert tier.copies.load_seconds > 0


@pytest.mark.parametrize("waits", [True, False])
def test_a_page_is_written_after_its_bytes_have_left_if_the_pass_waits(waits: bool) -> None:
    cache = a_cache()
    pool = pool_over(cache, 20, at_once=4)
    before = contents(cache, [5, 6])
    sleep(pool._stores)
    stored = pool.store({0: 5, 1: 6})
    assert not stored.left.landed
    if waits:
        pool.wait([stored.left])
    overwrite(cache)
    torch.cuda.synchronize()
    assert stored.left.landed
    assert stored.kept.landed
    pool.wait([pool.load([0, 1], [8, 9], [stored.kept])])
    assert equal(contents(cache, [8, 9]), before) is waits


@pytest.mark.parametrize("waits", [True, False])
def test_a_page_is_read_after_it_has_come_if_the_pass_waits_and_others_do_not(waits: bool) -> None:
    cache = a_cache()
    pool = pool_over(cache, 20, at_once=4)
    before = contents(cache, [5, 6])
    stored = pool.store({0: 5, 1: 6})
    sleep(pool._loads)
    move = pool.load([0, 1], [8, 9], [stored.kept])
    # A pass that reads none of it ends while the load is on its way.
    overwrite(cache)
    torch.cuda.current_stream().synchronize()
    assert not move.landed
    if waits:
        pool.wait([move])
    assert equal(contents(cache, [8, 9]), before) is waits
    torch.cuda.synchronize()


def test_stores_and_loads_do_not_wait_for_each_other() -> None:
    cache = a_cache()
    pool = pool_over(cache, 20, at_once=4)
    stored = pool.store({0: 5, 1: 6})
    stored.kept.event.synchronize()  # type: ignore[attr-defined]
    sleep(pool._loads)
    move = pool.load([0, 1], [8, 9], [])
    stored = pool.store({2: 7})
    stored.kept.event.synchronize()  # type: ignore[attr-defined]
    assert not move.landed
    move.event.synchronize()
    sleep(pool._stores)
    stored = pool.store({3: 8})
    pool.load([0], [9], []).event.synchronize()
    assert not stored.left.landed
    torch.cuda.synchronize()


def test_waiting_for_all_is_behind_copies_that_nobody_knows_of() -> None:
    cache = a_cache()
    pool = pool_over(cache, 20, at_once=4)
    before = contents(cache, [5])
    pool.store({0: 5})
    sleep(pool._loads)
    pool.load([0], [8], [])
    pool.wait_for_all()
    assert equal(contents(cache, [8]), before)


def test_its_staging_memory_is_in_the_plan(started: Callable[..., Runner]) -> None:
    runner = started(host_cache_bytes=8 * MIB)
    cache = runner.engine.attention.cache
    before = torch.cuda.memory_allocated()
    pool = PinnedPool(cache, 8 * MIB, lambda: 1 << 40)
    assert torch.cuda.memory_allocated() - before <= host_tier_bytes(runner.config)
    pool.measured()
    assert torch.cuda.memory_allocated() - before <= host_tier_bytes(runner.config)


WIDE: dict[str, Any] = {"dtype": "bfloat16", "page_size": 16, "max_model_len": 256, "kv_cache_bytes": 64 << 20}
"""Of an engine over `wide_folder`, on flashinfer's kernels."""
LONG_PROMPTS = random_prompts(4, shortest=100, longest=120, seed=5)


def texts(runner: Runner, tier: HostTier | None, pages: int, times: int = 2) -> tuple[list[list[int]], Scheduler]:
    """The prompts one after the other, so many times, over so many pages."""
    taken = runner.pages.take(runner.pages.available - pages)
    limits = replace(Limits.of(runner.config, 20), prefix_cache=True)
    scheduler = Scheduler(runner.pages, limits, runner.eos_ids, tier)
    run_ahead, asked = RunAhead(scheduler, runner), list[Sequence]()
    for number in range(times):
        for index, prompt in enumerate(LONG_PROMPTS):
            asked.append(Sequence(f"{number}.{index}", [*prompt, 7], len(prompt) + 1, 12, ignore_eos=True))
            scheduler.submit(asked[-1])
            while run_ahead.busy:
                run_ahead.turn()
    runner.pages.free(taken + scheduler.kv.tree.evict(runner.pages.capacity).pages)
    return [one.tokens for one in asked], scheduler


@pytest.mark.parametrize("dtype", [KvCacheDtype.Auto, KvCacheDtype.Fp8])
@pytest.mark.parametrize("decode", [Policy.Full, Policy.Breakable])
def test_flashinfer_texts_stay_the_same(
    started: Callable[..., Runner], wide_folder: Path, decode: Policy, dtype: KvCacheDtype
) -> None:
    """The garbling of host tier, FP8 and flashinfer: what comes back is what left. Each text is that of the same prompt
    over the prefix that stayed on the device: the same passes, so the same bits."""
    runner = started(
        Policy.Breakable, decode, folder=wide_folder, kv_cache_dtype=dtype, host_cache_bytes=64 << 20, **WIDE
    )
    assert "flashinfer" in runner.engine.attention.name
    whole = sum(len(prompt) // 16 * 16 for prompt in LONG_PROMPTS)
    kept, scheduler = texts(runner, None, 60)
    assert scheduler.kv.hit_tokens >= whole
    assert runner.host_tier is not None
    found, scheduler = texts(runner, runner.host_tier, 16)
    assert found == kept
    assert scheduler.kv.hit_tokens >= whole
    assert runner.host_tier.loaded >= 4 * 6
    assert runner.host_tier.failures == dict.fromkeys(HostCacheFailure, 0)


def test_the_tier_never_waits_for_the_device(started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores, loads and waits for them are launched, and the host goes on."""
    runner = started(host_cache_bytes=8 * MIB)
    tier = runner.host_tier
    assert tier is not None
    rounds(runner, tier=None)

    def strict(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            torch.cuda.set_sync_debug_mode("error")
            try:
                return call(*arguments)
            finally:
                torch.cuda.set_sync_debug_mode("default")

        return run

    for name in ("store", "load", "wait", "wait_for_all"):
        monkeypatch.setattr(tier.copies, name, strict(getattr(tier.copies, name)))
    rounds(runner, tier=tier)
    assert tier.stored > 0
    assert tier.loaded > 0
