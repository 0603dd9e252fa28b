"""An engine that ends leaves its prefixes in files: those used last first, within its time, and no error ends it."""

import errno
import math
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from graphpod_policy import KvCacheDtype
from graphpod_runtime.cache.files import file_tier, page_folder
from graphpod_runtime.cache.files.file_tier import FileFailure
from graphpod_runtime.cache.files.page_file import file_bytes
from graphpod_runtime.cache.files.page_folder import PageFolder
from graphpod_runtime.cache.files.part import Part
from graphpod_runtime.cache.flush import Flush
from graphpod_runtime.cache.host_pool import HostPool
from graphpod_runtime.cache.host_tier import CopyFailed, LoadCosts
from graphpod_runtime.engine.run_ahead import RunAhead
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule import kv_space
from graphpod_runtime.engine.schedule.scheduler import Scheduler
from graphpod_runtime.engine.schedule.sequence import Sequence as Request
from tests.unit.runtime.engine.test_host_cache import MIB, PROMPTS, always
from tests.unit.runtime.engine.test_host_cache_files import Start, files_of, scheduler_of, start

__all__ = ["always", "start"]

SIZE = 4
WHOLE = [len(prompt) // SIZE for prompt in PROMPTS]
"""Pages of each."""
ENTERED = [(len(prompt) + 6) // SIZE for prompt in PROMPTS]
"""With its answer."""


def asked(runner: Runner, *prompts: list[int]) -> tuple[Scheduler, list[Request]]:
    """One after the other, and all have room."""
    scheduler = scheduler_of(runner)
    run_ahead, requests = RunAhead(scheduler, runner), list[Request]()
    for number, prompt in enumerate(prompts):
        requests.append(Request(str(number), [*prompt, 7], len(prompt) + 1, 6, ignore_eos=True))
        scheduler.submit(requests[-1])
        while run_ahead.busy:
            run_ahead.turn()
    return scheduler, requests


def ends(scheduler: Scheduler, seconds: float = 30.0) -> None:
    """The engine, after so long at most."""
    scheduler.kv.flush(time.monotonic() + seconds, lambda: None)
    scheduler.kv.forget()


@pytest.mark.parametrize("dtype", [KvCacheDtype.Auto, KvCacheDtype.Fp8])
def test_pages_of_the_device_and_of_the_pool_are_found_by_the_next_engine(start: Start, dtype: KvCacheDtype) -> None:
    first = start(kv_cache_dtype=dtype)
    files = files_of(first)
    save, files.save = files.save, lambda left: None  # type: ignore[method-assign]
    few = first.pages.take(first.pages.available - 31)
    scheduler, requests = asked(first, *PROMPTS)
    first.pages.free(few)
    assert scheduler.kv.tree.host_size > 0
    assert scheduler.kv.tree.size > 0
    assert files.written == 0, "as if the disk had kept up with none of them"
    files.save = save  # type: ignore[method-assign]
    everything = scheduler.kv.tree.size + scheduler.kv.tree.host_size
    ends(scheduler)
    assert files.written == everything
    second = start(kv_cache_dtype=dtype)
    scheduler, again = asked(second, *PROMPTS)
    assert [one.tokens for one in again] == [one.tokens for one in requests]
    assert [one.cached for one in again] == [pages * SIZE for pages in WHOLE]
    assert files_of(second).hit_tokens == sum(WHOLE) * SIZE
    ends(scheduler)
    assert files_of(second).written == 0, "what is in files is not written again"
    for runner in (first, second):
        assert files_of(runner).failures == dict.fromkeys(FileFailure, 0)


@pytest.mark.parametrize("kept_up", [True, False])
def test_a_host_node_that_gives_its_slots_to_pages_of_the_device_leaves_no_file(start: Start, kept_up: bool) -> None:
    """With a full pool. What the slots hold by then must not be found as that node's pages."""
    page = files_of(start()).pool.page_bytes
    first = start(host_cache_bytes=20 * page)
    files = files_of(first)
    save = files.save
    if not kept_up:
        files.save = lambda left: None  # type: ignore[method-assign]
    few = first.pages.take(first.pages.available - 31)
    scheduler, requests = asked(first, *PROMPTS)
    first.pages.free(few)
    files.save = save  # type: ignore[method-assign]
    tree = scheduler.kv.tree
    assert tree.host_size == tree.slots
    before = tree.host_evicted
    ends(scheduler)
    assert tree.host_evicted > before
    second = start()
    scheduler, again = asked(second, *PROMPTS)
    assert [one.tokens for one in again] == [one.tokens for one in requests]
    assert [one.cached for one in again][2:] == [pages * SIZE for pages in WHOLE[2:]]
    ends(scheduler)


@pytest.mark.parametrize("slots", [1, 5])
def test_a_pool_that_is_smaller_than_a_move_takes_a_large_node_in_turns(start: Start, slots: int) -> None:
    page = files_of(start()).pool.page_bytes
    first = start(host_cache_bytes=slots * page)
    assert first.host_tier is not None
    assert first.host_tier.copies.at_once > ENTERED[1] > slots
    scheduler, _ = asked(first, PROMPTS[1], PROMPTS[1])
    everything = scheduler.kv.tree.size
    stored = first.host_tier.stored
    ends(scheduler)
    assert files_of(first).written == first.host_tier.stored - stored == everything >= ENTERED[1]
    second = start()
    scheduler, again = asked(second, PROMPTS[1])
    assert again[0].cached == WHOLE[1] * SIZE
    ends(scheduler)
    assert files_of(second).written == 0
    for runner in (first, second):
        assert files_of(runner).failures == dict.fromkeys(FileFailure, 0)


def test_a_takeover_that_has_begun_leaves_the_time_to_the_flush(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_tier, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(page_folder, "ABANDONED_SECONDS", 0.0)
    first = start()
    scheduler, _ = asked(first, PROMPTS[0])
    move, begun, ending, moved = Part.move, threading.Event(), threading.Event(), list[bytes]()

    def slow(part: Part, key: bytes, to: Part) -> bool:
        moved.append(key)
        begun.set()
        return ending.wait(20) and move(part, key, to)

    monkeypatch.setattr(Part, "move", slow)
    gone = PageFolder(tmp_path / "kv", MIB)
    for number in range(50):
        gone.write(bytes([number]) * 32, memoryview(bytearray(8)))
    gone.close()
    assert begun.wait(20)
    scheduler.kv.flush(time.monotonic() + 30, ending.set)
    assert files_of(first).written == scheduler.kv.tree.size
    assert len(moved) == 1
    scheduler.kv.forget()


def test_prefixes_that_were_used_last_go_first_and_each_from_its_beginning(start: Start) -> None:
    """The folder has room for fewer pages than there are, and older ones make way."""
    first = start()
    room = ENTERED[0] + ENTERED[2] + 1
    page = file_bytes(files_of(first).pool.page_bytes)
    first = start(files=room * page)
    scheduler, _ = asked(first, PROMPTS[3])
    ends(scheduler)
    scheduler, _ = asked(first, PROMPTS[0], PROMPTS[1], PROMPTS[2], PROMPTS[0])
    ends(scheduler)
    assert files_of(first).folder.used == room * page
    second = start(files=room * page)
    scheduler, again = asked(second, *PROMPTS)
    assert [(one.cached or 0) // SIZE for one in again] == [WHOLE[0], 1, WHOLE[2], 0]


def test_the_next_engine_knows_which_were_used_last(start: Start) -> None:
    """Files of a prefix go from its end, and those of the prefix that was used longest ago first."""
    first = start()
    scheduler, _ = asked(first, PROMPTS[0], PROMPTS[1])
    ends(scheduler)
    page = file_bytes(files_of(first).pool.page_bytes)
    second = start(files=(ENTERED[1] + 5) * page)
    scheduler, again = asked(second, PROMPTS[0], PROMPTS[1])
    assert [(one.cached or 0) // SIZE for one in again] == [5, WHOLE[1]]


def test_time_ends_it_and_what_was_written_by_then_is_found(
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = start()
    scheduler, _ = asked(first, *PROMPTS)
    files, answers, hangs, writev, beats = files_of(first), threading.Event(), threading.Event(), os.writev, [0]
    assert first.host_tier is not None
    first.host_tier.copies.at_once = 4

    def hanging(file: int, parts: list[memoryview]) -> int:
        if files.written >= 6:
            hangs.set()
            answers.wait(60)
        return writev(file, parts)

    def beat() -> None:
        beats[0] += hangs.is_set()

    def clock() -> float:
        return math.inf if beats[0] > 10 else 0.0

    monkeypatch.setattr(os, "writev", hanging)
    monkeypatch.setattr(kv_space, "Flush", partial(Flush, clock=clock))
    scheduler.kv.flush(time.monotonic() + 60, beat)
    assert files.written == 6
    answers.set()
    scheduler.kv.forget()
    second = start()
    scheduler, again = asked(second, PROMPTS[3])
    assert again[0].cached == 4 * SIZE, "a whole move, and none of the one that was cut from its end"
    assert files_of(second).failures == dict.fromkeys(FileFailure, 0)
    ends(scheduler)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_takes_nothing_ends_it(start: Start, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    first = start()
    scheduler, _ = asked(first, PROMPTS[0])

    def fails(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "writev", fails)
    ends(scheduler)
    assert files_of(first).written == 0
    assert sum(files_of(first).failures.values()) == ENTERED[0]


def test_a_copy_that_fails_ends_it(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    first = start()
    scheduler, _ = asked(first, PROMPTS[0])

    def fails(*_: object) -> None:
        raise CopyFailed("no memory")

    monkeypatch.setattr(HostPool, "store", fails)
    ends(scheduler)
    assert files_of(first).written == 0


def test_pages_that_are_computed_in_less_time_than_they_are_read_are_not_written(start: Start) -> None:
    first = start()
    assert first.host_tier is not None
    first.host_tier.costs = LoadCosts(0.0, 0.0, token=0.01)
    files_of(first).page_seconds = 0.01 * SIZE
    scheduler, _ = asked(first, PROMPTS[0])
    ends(scheduler)
    assert files_of(first).written == 0


def test_an_engine_that_ends_without_time_or_without_files_does_nothing(
    start: Start,
    started: Callable[..., Runner],
    tmp_path: Path,
) -> None:
    first = start()
    scheduler, _ = asked(first, PROMPTS[0])
    scheduler.kv.flush(0.0, lambda: None)
    assert files_of(first).written == 0
    scheduler.kv.forget()
    scheduler, _ = asked(started(host_cache_bytes=MIB), PROMPTS[0])
    ends(scheduler)
