"""Pages of an engine outlive it in files. The next one on the folder reads them and gives the same texts. It needs none
of them."""

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from graphpod_policy import KvCacheDtype, Policy
from graphpod_runtime.cache.files.file_tier import FileFailure, FileTier
from graphpod_runtime.cache.host_tier import HostCacheFailure, LoadCosts
from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.limits import Limits
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.schedule.sequence import Sequence as Request
from graphpod_runtime.engine.serving_metrics import ServingMetrics
from tests.unit.runtime.engine.test_host_cache import MIB, POLICIES, PROMPTS, always, rounds

__all__ = ["always"]

Start = Callable[..., Runner]


@pytest.fixture
def start(started: Start, tmp_path: Path) -> Iterator[Start]:
    """Engines on one folder. One that starts is a restart of the one before it, unless `together`."""
    tiers = list[FileTier]()

    def begin(*policies: Policy, together: bool = False, files: int = 64 * MIB, **features: object) -> Runner:
        if not together:
            while tiers:
                tiers.pop().close()
        folder = str(tmp_path / "kv")
        features = {"host_cache_bytes": 4 * MIB, **features}
        policies = policies or (Policy.Disabled, Policy.Disabled)
        runner = started(*policies, host_cache_folder=folder, host_cache_file_bytes=files, **features)
        tiers.append(files_of(runner))
        eventually(lambda: files_of(runner).looked.is_set())
        return runner

    yield begin
    while tiers:
        tiers.pop().close()


def files_of(runner: Runner) -> FileTier:
    assert runner.host_tier is not None
    assert runner.host_tier.files is not None
    return runner.host_tier.files


def eventually(done: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not done():
        assert time.monotonic() < until, "nothing came of it"
        time.sleep(0.001)


def settled(scheduler: Scheduler) -> None:
    """All that was evicted is in files."""
    kv = scheduler.kv
    assert kv.host is not None
    files, reads = kv.host.files, kv.files
    assert files is not None
    assert reads is not None

    def saved() -> bool:
        return kv.settle() and not reads.unsaved and not files.waiting_tokens

    eventually(saved)


@pytest.mark.parametrize(("policies", "dtype"), [(POLICIES[1], KvCacheDtype.Auto), (POLICIES[1], KvCacheDtype.Fp8)])
def test_an_engine_that_restarts_reads_what_the_one_before_it_had(
    start: Start, policies: tuple[Policy, Policy], dtype: KvCacheDtype
) -> None:
    first = start(*policies, kv_cache_dtype=dtype)
    expected, scheduler = rounds(first, tier=first.host_tier)
    settled(scheduler)
    written, page = files_of(first).written, files_of(first).pool.page_bytes
    assert written > 10
    assert files_of(first).read == 0, "what the pool has is not read from files"
    second = start(*policies, kv_cache_dtype=dtype)
    found, scheduler = rounds(second, tier=second.host_tier, times=1)
    assert found == {name: text for name, text in expected.items() if name in found}
    files, size = files_of(second), second.config.page_size
    assert files.hit_tokens == files.read * size >= sum(len(prompt) // size * size for prompt in PROMPTS[:2])
    assert second.host_tier is not None
    assert second.host_tier.loaded == files.read
    assert files.failures == dict.fromkeys(FileFailure, 0)
    metrics = ServingMetrics(second.counters, scheduler, 1, "model", lambda: 0)
    metrics.update()
    hit = {tier: second.counters.value("graphpod_prefix_cache_tier_hit_tokens_total", tier=tier)
           for tier in ("device", "host", "file")}  # fmt: skip
    assert hit == {"device": 0, "host": 0, "file": files.hit_tokens}
    moved = second.counters.value("graphpod_host_cache_file_moved_bytes_total", direction="read")
    assert moved == files.read * page


def test_other_weights_scales_or_types_find_nothing(start: Start, tmp_path: Path) -> None:
    first = start()
    _, scheduler = rounds(first, tier=first.host_tier)
    settled(scheduler)
    assert files_of(first).written
    second = start(kv_cache_dtype=KvCacheDtype.Fp8)
    rounds(second, tier=second.host_tier, times=1)
    assert (files_of(second).hit_tokens, files_of(second).failures) == (0, dict.fromkeys(FileFailure, 0))
    assert len(files_of(second).folder) >= files_of(first).written, "they lie there until others need the room"


def test_a_request_of_another_salt_computes_what_files_have(start: Start) -> None:
    first = start()
    _, scheduler = rounds(first, tier=first.host_tier)
    settled(scheduler)
    second = start()
    asked = ask(second, PROMPTS[0], salt="tenant")
    assert (asked.cached, files_of(second).read) == (0, 0)
    asked = ask(second, PROMPTS[0])
    assert asked.cached == files_of(second).hit_tokens > 0


def scheduler_of(runner: Runner) -> Scheduler:
    limits = replace(Limits.of(runner.config, 20), prefix_cache=True)
    return Scheduler(runner.pages, limits, runner.eos_ids, runner.host_tier)


def ask(runner: Runner, prompt: list[int], salt: str = "") -> Request:
    scheduler = scheduler_of(runner)
    request = Request("one", [*prompt, 7], len(prompt) + 1, 6, ignore_eos=True, salt=salt)
    scheduler.submit(request)
    run_ahead = RunAhead(scheduler, runner)
    while run_ahead.busy:
        run_ahead.turn()
    scheduler.kv.forget()
    return request


@pytest.mark.parametrize("spoil", ["cut", "alter", "delete", "unreadable"])
def test_a_spoilt_file_is_computed_and_no_request_fails(
    start: Start, tmp_path: Path, spoil: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start()
    expected, scheduler = rounds(first, tier=first.host_tier)
    settled(scheduler)
    second = start()
    files = [one for one in (tmp_path / "kv").glob("*/*") if len(one.name) == 64]
    for file in files:
        match spoil:
            case "cut":
                os.truncate(file, file.stat().st_size // 2)
            case "alter":
                content = bytearray(file.read_bytes())
                content[-1] ^= 1
                file.write_bytes(content)
            case "delete":
                file.unlink()
    if spoil == "unreadable":
        monkeypatch.setattr(os, "preadv", failing(errno.EIO))
    found, scheduler = rounds(second, tier=second.host_tier, times=1)
    assert found == {name: text for name, text in expected.items() if name in found}
    reason = {"delete": FileFailure.Missing, "unreadable": FileFailure.Read}.get(spoil, FileFailure.Corrupt)
    failures = files_of(second).failures
    assert failures[reason] > 0
    assert sum(failures.values()) == failures[reason]
    assert (files_of(second).hit_tokens, files_of(second).read) == (0, 0)


def failing(code: int) -> Callable[..., int]:
    def fails(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    return fails


def test_a_full_disk_is_counted_and_no_request_fails(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = start()
    expected, _ = rounds(runner, tier=None)
    monkeypatch.setattr(os, "writev", failing(errno.ENOSPC))
    found, scheduler = rounds(runner, tier=runner.host_tier)
    settled(scheduler)
    assert found == expected
    files = files_of(runner)
    assert (files.written, files.folder.used) == (0, 0)
    assert files.failures[FileFailure.Full] > 10
    assert runner.host_tier is not None
    assert runner.host_tier.failures == dict.fromkeys(HostCacheFailure, 0)


def test_a_folder_that_cannot_be_used_is_counted_and_the_engine_serves_without(started: Start, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    runner = started(host_cache_bytes=MIB, host_cache_folder=str(tmp_path / "file"), host_cache_file_bytes=MIB)
    assert runner.host_tier is not None
    assert runner.host_tier.files is None
    assert runner.counters.value("graphpod_host_cache_file_failures_total", reason="Folder") == 1


def test_two_engines_on_one_folder_serve_from_each_other(start: Start) -> None:
    first = start()
    expected, scheduler = rounds(first, tier=first.host_tier)
    settled(scheduler)
    second = start(together=True)
    found, scheduler = rounds(second, tier=second.host_tier)
    assert found == expected
    assert files_of(second).hit_tokens > 0
    settled(scheduler)
    again, _ = rounds(first, tier=first.host_tier)
    assert again == expected
    for runner in (first, second):
        assert files_of(runner).failures == dict.fromkeys(FileFailure, 0)


def test_a_request_waits_for_a_disk_that_does_not_answer_as_long_as_computing_takes(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start()
    expected, scheduler = rounds(first, tier=first.host_tier)
    settled(scheduler)
    second = start()
    files, tier, answers = files_of(second), second.host_tier, threading.Event()
    assert tier is not None
    preadv, now = os.preadv, [0.0]

    def hanging(file: int, parts: list[memoryview], at: int) -> int:
        answers.wait(20)
        return preadv(file, parts, at)

    monkeypatch.setattr(os, "preadv", hanging)

    def clock() -> float:
        now[0] += 0.001
        return now[0]

    files.clock, tier.costs = clock, LoadCosts(0.0, 0.0, 0.01)
    request = ask(second, PROMPTS[0])
    assert request.tokens == expected["0.0"]
    pages = len(PROMPTS[0]) // second.config.page_size
    assert (request.cached, files.failures[FileFailure.Late]) == (0, pages)
    worth = pages * second.config.page_size * 0.01
    assert worth <= files.wait_seconds <= worth + 0.1
    answers.set()
    eventually(lambda: files.read == pages)


def test_others_are_served_while_one_waits_for_files(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    first = start()
    _, scheduler = rounds(first, tier=first.host_tier)
    settled(scheduler)
    second = start()
    answers, preadv = threading.Event(), os.preadv

    def hanging(file: int, parts: list[memoryview], at: int) -> int:
        answers.wait(20)
        return preadv(file, parts, at)

    monkeypatch.setattr(os, "preadv", hanging)
    scheduler = scheduler_of(second)
    run_ahead = RunAhead(scheduler, second)
    waits = Request("waits", [*PROMPTS[0], 7], len(PROMPTS[0]) + 1, 6, ignore_eos=True)
    other = Request("other", [3, 4, 5], 3, 6, ignore_eos=True)
    scheduler.submit(waits)
    scheduler.submit(other)
    while len(other.tokens) < 9:
        run_ahead.turn()
    assert (waits.cached, scheduler.waiting) == (None, 1)
    answers.set()
    while run_ahead.busy:
        run_ahead.turn()
    assert waits.cached == files_of(second).hit_tokens > 0
    scheduler.kv.forget()


def test_aborted_while_it_waits_a_request_leaves_no_slot_behind(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    first = start()
    _, scheduler = rounds(first, tier=first.host_tier)
    settled(scheduler)
    second = start()
    scheduler = scheduler_of(second)
    scheduler.submit(Request("waits", [*PROMPTS[0], 7], len(PROMPTS[0]) + 1, 6, ignore_eos=True))
    assert scheduler.next() is None
    assert scheduler.abort("waits")
    pages = len(PROMPTS[0]) // second.config.page_size
    reads = scheduler.kv.files
    assert reads is not None
    eventually(lambda: scheduler.kv.settle() and not reads._coming)  # a page counts as read a little before
    assert files_of(second).read == pages
    assert scheduler.kv.tree.host_size == pages, "what came is there for others"
    scheduler.kv.tree.clear_host()
    assert scheduler.kv.tree.host_size == 0
