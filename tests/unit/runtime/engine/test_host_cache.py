"""An engine with a host tier gives the texts of one without: evicted prefixes are loaded, bit for bit, and nothing that
the tier meets fails a request."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import starmap
from typing import Any

import pytest
import torch

from graphpod_policy import KvCacheDtype, Policy, SpeculativeMethod
from graphpod_runtime.cache.host_pool import HostPool
from graphpod_runtime.cache.host_tier import (
    EVICTED_AT_ONCE,
    CopyFailed,
    HostCacheFailure,
    HostTier,
    LoadCosts,
)
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.cache.moves import Move, Stored
from graphpod_runtime.cache.pinned_pool import PinnedPool
from graphpod_runtime.cache.radix_node import Node
from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.schedule.sequence import Sequence as Request
from graphpod_runtime.engine.serving_metrics import ServingMetrics
from tests.unit.runtime.conftest import random_prompts

MIB = 1 << 20
PAGES = 31
"""Room for two of the prompts."""
PROMPTS = random_prompts(4, shortest=50, longest=60, seed=3)
POLICIES = [
    (Policy.Disabled, Policy.Disabled),
    (Policy.Breakable, Policy.Full),
    (Policy.Breakable, Policy.Breakable),
    (Policy.Piecewise, Policy.Full),
]


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHPOD_DEBUG", "reload")


def rounds(runner: Runner, *, tier: HostTier | None, times: int = 2) -> tuple[dict[str, list[int]], Scheduler]:
    """The prompts one after the other, twice: with few pages the second round finds none of the first on the device."""
    others = runner.pages.take(runner.pages.available - PAGES)
    limits = replace(Limits.of(runner.config, 20), prefix_cache=True)
    scheduler = Scheduler(runner.pages, limits, runner.eos_ids, tier)
    run_ahead, asked = RunAhead(scheduler, runner), list[Request]()
    for number in range(times):
        for index, prompt in enumerate(PROMPTS):
            asked.append(Request(f"{number}.{index}", [*prompt, 7 + number], len(prompt) + 1, 6, ignore_eos=True))
            scheduler.submit(asked[-1])
            while run_ahead.busy:
                run_ahead.turn()
    assert scheduler.kv.available == PAGES
    assert all(len(one.tokens) == one.prompt_len + 6 for one in asked)
    tree = scheduler.kv.tree
    in_tree = [page for root in tree.roots.values() for page in _pages_below(root)]
    assert len(in_tree) == tree.size
    runner.pages.free(others + in_tree)
    return {one.id: one.tokens for one in asked}, scheduler


def _pages_below(node: Node) -> list[int]:
    """Those of the device."""
    below = [page for child in node.children.values() if not child.host for page in _pages_below(child)]
    return node.pages + below


@pytest.mark.parametrize(
    ("policies", "dtype"), [*((row, KvCacheDtype.Auto) for row in POLICIES), (POLICIES[1], KvCacheDtype.Fp8)]
)
def test_evicted_prefixes_are_loaded_and_texts_stay_the_same(
    started: Callable[..., Runner], policies: tuple[Policy, Policy], dtype: KvCacheDtype
) -> None:
    runner = started(*policies, host_cache_bytes=4 * MIB, kv_cache_dtype=dtype)
    expected, scheduler = rounds(runner, tier=None)
    assert scheduler.kv.hit_tokens == 0, "without the tier all is evicted before it is asked for again"
    tier = runner.host_tier
    assert tier is not None
    found, scheduler = rounds(runner, tier=tier)
    assert found == expected
    size = runner.config.page_size
    whole = sum(len(prompt) // size * size for prompt in PROMPTS)
    assert (scheduler.kv.hit_tokens, tier.loaded * size) == (whole, tier.hit_tokens)
    assert tier.hit_tokens > whole // 2
    assert tier.stored * size == scheduler.kv.tree.evicted * size
    assert tier.failures == dict.fromkeys(HostCacheFailure, 0)


class Watched(HostPool):
    """Notes the bytes of pages that leave, and compares them with those that come back."""

    def __init__(self, cache: KvCache, size: int) -> None:
        super().__init__(cache, size)
        self.cache, self.left, self.compared = cache, dict[int, list[torch.Tensor]](), 0

    def bytes_of(self, page: int) -> list[torch.Tensor]:
        return [half.view(torch.uint8).clone() for half in self.cache.take(torch.tensor([page]))]

    def store(self, moved: Mapping[int, int]) -> Stored:
        self.left |= {slot: self.bytes_of(page) for slot, page in moved.items()}
        return super().store(moved)

    def load(self, slots: Sequence[int], pages: Sequence[int], behind: Iterable[Move] = ()) -> Move:
        landed = super().load(slots, pages)
        for slot, page in zip(slots, pages, strict=True):
            assert all(starmap(torch.equal, zip(self.left[slot], self.bytes_of(page), strict=True)))
            self.compared += 1
        return landed


def test_a_page_comes_back_bit_for_bit(started: Callable[..., Runner]) -> None:
    runner = started(kv_cache_dtype=KvCacheDtype.Fp8)
    watched = Watched(runner.engine.attention.cache, MIB)
    rounds(runner, tier=HostTier(watched, LoadCosts(0, 0, 1), runner.config.page_size))
    assert watched.compared > 20


class Late:
    """Is Move, of a copy that runs when somebody waits for it."""

    def __init__(self, copy: Callable[[], object], before: Iterable[Any], lies: bool) -> None:
        self._copy, self._before, self._done, self._lies = copy, tuple(before), False, lies

    @property
    def landed(self) -> bool:
        return self._done or self._lies

    def force(self) -> None:
        if not self._done:
            self._done = True
            for one in self._before:
                one.force()
            self._copy()


class Deferred(HostPool):
    """A device's other lines at their slowest. `lies`: its copies say that they have landed, and have not."""

    def __init__(self, cache: KvCache, size: int, *, lies: bool = False) -> None:
        super().__init__(cache, size)
        self.at_once = 3
        self.lies, self.stores, self.loads, self.calls = lies, list[Late](), list[Late](), 0

    def store(self, moved: Mapping[int, int]) -> Stored:
        copies = dict(moved)
        self.stores.append(Late(lambda: HostPool.store(self, copies), self.stores[-1:], self.lies))
        return Stored(self.stores[-1], self.stores[-1])

    def load(self, slots: Sequence[int], pages: Sequence[int], behind: Iterable[Move] = ()) -> Move:
        assert len(slots) <= self.at_once
        from_slots, to_pages = list(slots), list(pages)
        before = [*self.loads[-1:], *behind]
        self.loads.append(Late(lambda: HostPool.load(self, from_slots, to_pages), before, self.lies))
        return self.loads[-1]

    def wait(self, moves: Iterable[Any]) -> None:
        for move in moves:
            move.force()

    def wait_for_all(self) -> None:
        self.wait(self.stores[-1:] + self.loads[-1:])


def test_passes_wait_for_copies_wherever_these_are(started: Callable[..., Runner]) -> None:
    """A page is written by its next owner after its bytes have left, and read after they have come."""
    runner = started()
    expected, _ = rounds(runner, tier=None)
    cache = runner.engine.attention.cache
    tier = HostTier(Deferred(cache, MIB), LoadCosts(0, 0, 1), runner.config.page_size)
    runner.host_tier = tier
    assert rounds(runner, tier=tier)[0] == expected
    assert tier.loaded > 0
    assert tier.waits > 0
    runner.host_tier = HostTier(Deferred(cache, MIB, lies=True), LoadCosts(0, 0, 1), runner.config.page_size)
    assert rounds(runner, tier=runner.host_tier)[0] != expected, "this test sees a wait that is missing"


class Failing(HostPool):
    """The first copy of one direction fails, half done."""

    def __init__(self, cache: KvCache, size: int, reason: HostCacheFailure) -> None:
        super().__init__(cache, size)
        self.reason, self.calls = reason, 0

    def fails(self, reason: HostCacheFailure) -> bool:
        self.calls += reason is self.reason
        return reason is self.reason and self.calls == 1

    def store(self, moved: Mapping[int, int]) -> Stored:
        if self.fails(HostCacheFailure.Store):
            raise CopyFailed("no memory")
        return super().store(moved)

    def load(self, slots: Sequence[int], pages: Sequence[int], behind: Iterable[Move] = ()) -> Move:
        if self.fails(HostCacheFailure.Load):
            super().load(slots[: len(slots) // 2], pages[: len(slots) // 2])
            raise CopyFailed("unplugged")
        return super().load(slots, pages)


@pytest.mark.parametrize("reason", [HostCacheFailure.Store, HostCacheFailure.Load])
def test_a_copy_that_fails_is_counted_and_its_tokens_are_computed(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch, reason: HostCacheFailure
) -> None:
    monkeypatch.setenv("GRAPHPOD_DEBUG", "poison")
    runner = started()
    expected, _ = rounds(runner, tier=None, times=3)
    tier = HostTier(Failing(runner.engine.attention.cache, MIB, reason), LoadCosts(0, 0, 1), runner.config.page_size)
    runner.host_tier = tier
    found, _ = rounds(runner, tier=tier, times=3)
    assert found == expected
    assert tier.failures == dict.fromkeys(HostCacheFailure, 0) | {reason: 1}
    assert tier.waits_for_all > 0
    assert tier.loaded > 0, "it goes on"


def test_poison_spoils_neither_what_leaves_nor_what_comes(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHPOD_DEBUG", "poison,reload")
    runner = started(host_cache_bytes=4 * MIB)
    expected, _ = rounds(runner, tier=None)
    assert rounds(runner, tier=runner.host_tier)[0] == expected
    assert runner.host_tier is not None
    assert runner.host_tier.loaded > 0
    assert runner.host_tier.waits_for_all > 0, "poison is written to pages of nobody"


def test_a_page_that_was_not_clean_is_not_wiped_after_its_load(started: Callable[..., Runner]) -> None:
    """Pages of an engine with drafts are zeroed before their next owner."""
    drafts: dict[str, Any] = {"speculative": SpeculativeMethod.Ngram, "speculative_max_batch": 8}
    runner = started(host_cache_bytes=4 * MIB, **drafts)
    expected, _ = rounds(runner, tier=None)
    assert rounds(runner, tier=runner.host_tier)[0] == expected
    assert runner.host_tier is not None
    assert runner.host_tier.loaded > 0
    assert runner.host_tier.waits_for_all == 0, "of no pass, although each end of a request leaves such pages"


def test_a_hit_is_loaded_only_where_that_takes_less_time(started: Callable[..., Runner]) -> None:
    runner = started()
    pool, size = HostPool(runner.engine.attention.cache, MIB), runner.config.page_size
    dear = HostTier(pool, LoadCosts(load=0.0, page=1.0, token=0.2), size)
    _, scheduler = rounds(runner, tier=dear)
    assert (dear.loaded, dear.hit_tokens, scheduler.kv.hit_tokens) == (0, 0, 0)
    assert dear.skipped_tokens > 100
    assert dear.stored > 0


@pytest.mark.parametrize(
    ("costs", "pages", "pays"),
    [
        (LoadCosts(load=0, page=0.001, token=0.0001), 1, True),  # 1 ms against 1.6 ms
        (LoadCosts(load=0, page=0.001, token=0.00005), 100, False),  # 0.1 s against 0.08 s
        (LoadCosts(load=0.01, page=0.001, token=0.0001), 16, False),  # 26 ms against 25.6 ms
        (LoadCosts(load=0.01, page=0.001, token=0.0001), 17, True),  # 27 ms against 27.2 ms
        (LoadCosts(load=0, page=0, token=0), 5, False),
        (LoadCosts(load=0, page=0, token=1), 0, False),
    ],
)
def test_what_pays(costs: LoadCosts, pages: int, pays: bool) -> None:
    assert costs.pays(pages, page_size=16) is pays


def test_costs_are_measured_at_the_start(started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAPHPOD_DEBUG")
    for policy in (Policy.Breakable, Policy.Disabled):
        tier = started(policy, host_cache_bytes=4 * MIB).host_tier
        assert tier is not None
        assert tier.costs.page > 0
        assert tier.costs.token > 0


def test_a_pool_that_cannot_be_allocated_is_counted_and_the_engine_serves(
    started: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(cache: KvCache, size: int) -> HostPool:
        raise MemoryError(f"{size} bytes")

    monkeypatch.setattr("graphpod_runtime.engine.start.host_cache.HostPool", none)
    runner = started(host_cache_bytes=4 * MIB)
    assert runner.host_tier is None
    assert runner.counters.value("graphpod_host_cache_failures_total", reason="Allocation") == 1
    rounds(runner, tier=None)


def test_a_pool_without_room_for_a_page_is_counted_and_said(
    started: Callable[..., Runner], caplog: pytest.LogCaptureFixture
) -> None:
    runner = started(host_cache_bytes=1000)
    assert runner.host_tier is None
    assert runner.counters.value("graphpod_host_cache_failures_total", reason="Allocation") == 1
    assert "1000 bytes hold no page, which takes 4608: raise hostCache.size" in caplog.text


class Pinned(PinnedPool):
    """A PinnedPool that pins nothing, of pages of 64 MiB."""

    def __init__(self, size: int, available: int) -> None:
        self.page_bytes, self.failed_allocations = 64 * MIB, 0
        self._size, self.slots, self._left = size, 0, available
        self._available = lambda: self._left

    def _pin(self, slots: int) -> None:
        self.slots += slots
        self._left -= slots * self.page_bytes


@pytest.mark.parametrize(("available", "slots", "failures"), [(4096, 16, 0), (1100, 12, 1), (500, 0, 1)])
def test_pinning_ends_before_the_memory_of_the_container_does(available: int, slots: int, failures: int) -> None:
    pool = Pinned(1024 * MIB, available * MIB)
    pool._allocate()
    assert (pool.slots, pool.failed_allocations) == (slots, failures)


def test_metrics_name_the_tier_and_count_bytes_each_way(started: Callable[..., Runner]) -> None:
    runner = started(host_cache_bytes=4 * MIB)
    tier = runner.host_tier
    assert tier is not None
    _, scheduler = rounds(runner, tier=tier)
    ServingMetrics(runner.counters, scheduler, 100, "tiny", lambda: 0).update()

    def value(name: str, **labels: str) -> float:
        return runner.counters.value(f"graphpod_{name}", **labels)

    page = tier.copies.page_bytes
    pages = 4 * MIB // page
    assert runner.report.as_dict()["hostCache"] == {"bytes": pages * page, "tokens": pages * 4}
    assert page == 2 * 3 * 4 * 3 * 16 * 4  # keys and values, layers, tokens, heads, dimension, bytes
    assert value("host_cache_capacity_bytes") == 4 * MIB // page * page
    assert value("host_cache_used_bytes") == scheduler.kv.tree.host_size * page > 0
    assert value("host_cache_copied_bytes_total", direction="store") == tier.stored * page
    assert value("host_cache_copied_bytes_total", direction="load") == tier.loaded * page > 0
    for direction in ("store", "load"):
        assert value("host_cache_copy_seconds_total", direction=direction) > 0
    assert value("host_cache_waits_total") == tier.waits
    assert value("host_cache_full_waits_total") == tier.waits_for_all
    assert value("host_cache_request_wait_seconds_total") == tier.wait_seconds > 0
    by_tier = [value("prefix_cache_tier_hit_tokens_total", tier=name) for name in ("device", "host")]
    assert by_tier == [scheduler.kv.hit_tokens - tier.hit_tokens, tier.hit_tokens]


def test_pages_leave_in_groups_and_a_small_pool_keeps_the_latest(started: Callable[..., Runner]) -> None:
    runner = started()
    pool = HostPool(runner.engine.attention.cache, 20 * 2 * 3 * 4 * 3 * 16 * 4)
    assert pool.slots == 20
    tier = HostTier(pool, LoadCosts(0, 0, 1), runner.config.page_size)
    expected, _ = rounds(runner, tier=None)
    found, scheduler = rounds(runner, tier=tier)
    assert found == expected
    assert scheduler.kv.tree.evicted >= EVICTED_AT_ONCE
    assert scheduler.kv.tree.host_size <= 20
    assert scheduler.kv.tree.host_evicted > 0
