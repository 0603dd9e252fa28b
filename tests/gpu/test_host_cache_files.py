"""Files under the pinned pool: a thread sees the bytes of a slot when its store has landed, and no file gets others."""

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from graphpod_policy import KvCacheDtype, Policy
from graphpod_policy.model.latent import Latent
from graphpod_runtime.base.shapes import ModelShape
from graphpod_runtime.cache.file_reads import FileReads
from graphpod_runtime.cache.files.file_tier import FileFailure, FileTier
from graphpod_runtime.cache.files.page_file import HEADER
from graphpod_runtime.cache.files.page_folder import PageFolder
from graphpod_runtime.cache.files.page_keys import page_keys
from graphpod_runtime.cache.host_pool import halves
from graphpod_runtime.cache.host_tier import HostTier, LoadCosts
from graphpod_runtime.cache.kv import KvCache
from graphpod_runtime.cache.pinned_pool import PinnedPool
from graphpod_runtime.cache.radix import RadixTree
from graphpod_runtime.cache.radix_node import Match
from tests.gpu.test_host_cache import CUDA, LONG_PROMPTS, PAGES, SHAPE, SIZE, WIDE, overwrite, sleep, texts
from tests.unit.runtime.engine.test_flush import (  # noqa: F401
    test_a_disk_that_takes_nothing_ends_it,
    test_pages_of_the_device_and_of_the_pool_are_found_by_the_next_engine,
    test_pages_that_are_computed_in_less_time_than_they_are_read_are_not_written,
    test_prefixes_that_were_used_last_go_first_and_each_from_its_beginning,
    test_the_next_engine_knows_which_were_used_last,
    test_time_ends_it_and_what_was_written_by_then_is_found,
)
from tests.unit.runtime.engine.test_host_cache_files import (  # noqa: F401
    Start,
    always,
    eventually,
    files_of,
    settled,
    start,
    test_a_full_disk_is_counted_and_no_request_fails,
    test_a_request_of_another_salt_computes_what_files_have,
    test_a_request_waits_for_a_disk_that_does_not_answer_as_long_as_computing_takes,
    test_a_spoilt_file_is_computed_and_no_request_fails,
    test_aborted_while_it_waits_a_request_leaves_no_slot_behind,
    test_an_engine_that_restarts_reads_what_the_one_before_it_had,
    test_other_weights_scales_or_types_find_nothing,
    test_others_are_served_while_one_waits_for_files,
    test_two_engines_on_one_folder_serve_from_each_other,
)

NOBODY = "", ""
TEXT = list(range(100, 100 + 4 * SIZE))
OTHER = list(range(200, 200 + 4 * SIZE))
GIB = 1 << 30


class Tier(NamedTuple):
    """A tree over a cache of PAGES pages, a pinned pool and a folder."""

    cache: KvCache
    pool: PinnedPool
    host: HostTier
    files: FileTier
    tree: RadixTree
    reads: FileReads

    def leaves(self, tokens: list[int], pages: list[int]) -> list[int]:
        """`pages` hold `tokens` and leave the device: the slots that get them, in their order."""
        node = self.tree.lock(tokens, len(tokens), NOBODY)
        node, taken = self.tree.insert(node, tokens, pages)
        assert taken == pages
        self.tree.unlock(node)
        evicted = self.tree.evict(len(pages))
        self.host.store(evicted.moved)
        self.host.turn(everything=True)
        self.reads.stored(evicted.nodes)
        slot_of = {page: slot for slot, page in evicted.moved.items()}
        return [slot_of[page] for page in pages]

    def saved(self) -> None:
        """All that has left is in files."""

        def done() -> bool:
            self.reads.settle()
            return not self.reads.unsaved and not self.files.waiting_tokens

        eventually(done)

    def ask(self, tokens: list[int]) -> None:
        """A sequence waits for `tokens`, of which the tree has nothing."""
        self.reads.ask("reader", NOBODY, tokens, Match(0, 0, 0))

    def comes(self, tokens: list[int], pages: list[int]) -> None:
        """The sequence waits until its `tokens` are on the host; they go to `pages`, in line with the passes."""

        def done() -> bool:
            self.reads.settle()
            return not self.reads.waits("reader")

        eventually(done)
        slots = self.tree.host_slots(self.tree.lock(tokens, 0, NOBODY), tokens, len(tokens))
        assert len(slots) == len(pages)
        self.host.load(slots, pages)
        self.host.join(self.host.awaited(pages))

    def page(self, number: int) -> bytes:
        """What a slot has of it, in line with the passes."""
        return torch.stack([half[:, number] for half in halves(self.cache)], 1).cpu().numpy().tobytes()

    def file(self, tokens: list[int], page: int) -> Path:
        """Where a page of `tokens` is, or would be."""
        key = list(page_keys(b"identity", NOBODY, tokens, SIZE, 0))[page]
        return Path(f"/proc/self/fd/{self.files.folder._folder}/0/{key.hex()}")


Build = Callable[..., Tier]


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    tiers = list[Tier]()

    def begin(dtype: torch.dtype = torch.bfloat16, shape: ModelShape = SHAPE, slots: int = 30) -> Tier:
        cache = KvCache.allocate(shape, PAGES, SIZE, dtype, CUDA)
        for seed, half in enumerate(cache.halves):
            words = half.view(torch.uint8)
            words.copy_(torch.randint(0, 256, words.shape, generator=torch.Generator().manual_seed(seed)))
        one_page = sum(half[:, 0].nbytes for half in cache.halves)
        pool = PinnedPool(cache, slots * one_page, lambda: 1 << 40, staging_bytes=4 * one_page)
        pool._allocate()
        pool.measured()  # loads the kernels: the first use of one waits for the device
        for slot in range(slots):
            pool.content(slot)[:] = bytes(one_page)
        files = FileTier(PageFolder(tmp_path / "kv", GIB), b"identity", SIZE, pool)
        host = HostTier(pool, LoadCosts(0, 0, 60.0), SIZE, files=files)
        files.begin()
        tree = RadixTree(SIZE, pool.slots)
        tiers.append(Tier(cache, pool, host, files, tree, FileReads(host, files, tree)))
        assert files.looked.wait(20)
        return tiers[-1]

    yield begin
    torch.cuda.synchronize()
    for tier in tiers:
        tier.files.close()


LATENT = replace(SHAPE, kv_heads=1, head_dim=72, latent=Latent(0, 64, 16, 8, 16))
ODD = replace(SHAPE, kv_heads=1, head_dim=7)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [(torch.float32, SHAPE), (torch.bfloat16, SHAPE), (torch.float8_e4m3fn, SHAPE), (torch.float8_e4m3fn, ODD),
     (torch.bfloat16, LATENT)],
    ids=["float32", "bfloat16", "fp8", "fp8 of words of 4 bytes", "bfloat16 of one half"],
)  # fmt: skip
def test_pages_come_to_files_and_back_bit_for_bit(build: Build, dtype: torch.dtype, shape: ModelShape) -> None:
    """Pages that are no neighbours, in slots of two slabs."""
    tier = build(dtype, shape)
    assert len(tier.pool._slabs) == 2
    others = tier.leaves(list(range(14 * SIZE)), list(range(10, 24)))
    pages, back = [3, 39, 4, 30], [1, 38, 2, 25]
    left = [tier.page(number) for number in pages]
    slots = tier.leaves(TEXT, pages)
    assert min([*others, *slots]) < tier.pool._firsts[1] <= max([*others, *slots])
    overwrite(tier.cache)
    tier.saved()
    assert [tier.file(TEXT, place).read_bytes()[HEADER.size :] for place in range(4)] == left
    tier.tree.clear_host()
    tier.ask(TEXT)
    tier.comes(TEXT, back)
    assert [tier.page(number) for number in back] == left
    assert tier.page(5) == bytes([7]) * len(left[0]), "no other page is written"
    assert (tier.files.written, tier.files.read) == (18, 4)
    assert tier.files.failures == dict.fromkeys(FileFailure, 0)


def test_a_page_goes_to_its_file_after_its_store_has_landed(build: Build) -> None:
    tier = build()
    left = [tier.page(number) for number in (3, 9, 4, 30)]
    sleep(tier.pool._stores)
    slots = tier.leaves(TEXT, [3, 9, 4, 30])
    tier.reads.settle()
    assert bytes(tier.pool.content(slots[0])) == bytes(tier.pool.page_bytes), "a thread that did not wait reads this"
    assert (tier.reads.unsaved, tier.files.waiting_tokens, tier.files.written) == (4, 0, 0)
    tier.saved()
    assert tier.files.written == 4
    assert [tier.file(TEXT, place).read_bytes()[HEADER.size :] for place in range(4)] == left


def test_a_slot_that_gets_another_page_gives_no_file_of_the_first(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread is at the first page when the slot of the second gets other bytes, and copies the third while these
    change."""
    tier = build()
    left = [tier.page(number) for number in (3, 9, 4, 30)]
    writes, goes_on, writev, content = threading.Event(), threading.Event(), os.writev, tier.pool.content

    def held(file: int, parts: list[memoryview]) -> int:
        writes.set()
        goes_on.wait(20)
        return writev(file, parts)

    def changing(slot: int) -> memoryview:
        if slot == slots[2]:
            tier.files.reused([slot])
            tier.pool.store({slot: 12})
            torch.cuda.synchronize()
        return content(slot)

    monkeypatch.setattr(os, "writev", held)
    slots = tier.leaves(TEXT, [3, 9, 4, 30])
    torch.cuda.synchronize()
    tier.reads.settle()
    assert writes.wait(20)
    tier.host.store({slots[1]: 11})
    tier.host.turn(everything=True)
    torch.cuda.synchronize()
    assert bytes(content(slots[1])) == tier.page(11)
    monkeypatch.setattr(tier.pool, "content", changing)
    goes_on.set()
    tier.saved()
    assert [tier.file(TEXT, place).exists() for place in range(4)] == [True, False, False, True]
    assert [tier.file(TEXT, place).read_bytes()[HEADER.size :] for place in (0, 3)] == [left[0], left[3]]
    assert tier.files.failures == dict.fromkeys(FileFailure, 0) | {FileFailure.Overtaken: 2}


def test_files_are_read_into_slots_after_the_stores_to_them_have_landed(build: Build) -> None:
    """All slots get a page that leaves, and go to one that comes before it has."""
    tier = build(slots=8)
    left = [tier.page(number) for number in (3, 9, 4, 30)]
    tier.leaves(TEXT, [3, 9, 4, 30])
    tier.saved()
    tier.tree.clear_host()
    sleep(tier.pool._stores)
    tier.leaves(OTHER + list(range(300, 300 + 4 * SIZE)), [10, 11, 12, 13, 14, 15, 16, 17])
    tier.ask(TEXT)
    tier.reads.settle()
    assert tier.reads.waits("reader")
    assert tier.files.read == 0, "the store would overwrite what was read"
    tier.comes(TEXT, [1, 2, 5, 6])
    assert [tier.page(number) for number in (1, 2, 5, 6)] == left
    tier.saved()
    assert tier.files.failures[FileFailure.Overtaken] == 4, "slots that were given up before they were written"
    assert tier.files.written == 8


def test_draining_returns_when_no_copy_is_on_its_way(build: Build) -> None:
    tier = build()
    for line in (tier.pool._stores, tier.pool._loads):
        sleep(line)
    stored = tier.pool.store({0: 5, 1: 6})
    loaded = tier.pool.load([8, 9], [8, 9])
    assert not stored.kept.landed
    assert not loaded.landed
    tier.pool.drain()
    assert stored.kept.landed
    assert loaded.landed


def test_files_never_wait_for_the_device(build: Build) -> None:
    tier = build()

    def strict(call: Callable[[], Any]) -> None:
        torch.cuda.set_sync_debug_mode("error")
        try:
            call()
        finally:
            torch.cuda.set_sync_debug_mode("default")

    sleep(tier.pool._stores)
    strict(lambda: tier.leaves(TEXT, [3, 9, 4, 30]))
    strict(tier.reads.settle)
    assert tier.reads.unsaved == 4
    strict(tier.saved)
    tier.tree.clear_host()
    strict(lambda: tier.ask(TEXT))
    strict(lambda: tier.comes(TEXT, [1, 2, 5, 6]))


@pytest.mark.parametrize("dtype", [KvCacheDtype.Auto, KvCacheDtype.Fp8])
def test_flashinfer_texts_stay_the_same_after_a_restart(start: Start, wide_folder: Path, dtype: KvCacheDtype) -> None:  # noqa: F811
    """As in `test_host_cache`, by an engine that has computed none of the prefixes."""
    settings = WIDE | {"folder": wide_folder, "kv_cache_dtype": dtype, "host_cache_bytes": 64 << 20, "files": GIB}
    first = start(Policy.Breakable, Policy.Full, **settings)
    assert "flashinfer" in first.engine.attention.name
    kept, _ = texts(first, None, 60)
    _, scheduler = texts(first, first.host_tier, 16)
    settled(scheduler)
    second = start(Policy.Breakable, Policy.Full, **settings)
    found, scheduler = texts(second, second.host_tier, 16, times=1)
    assert found == kept[len(LONG_PROMPTS) :]
    files = files_of(second)
    assert files.failures == dict.fromkeys(FileFailure, 0)
    assert files.hit_tokens == files.read * 16
    assert files.read >= sum(len(prompt) // 16 for prompt in LONG_PROMPTS) - 16, "all but what was still on the device"
