"""Processes on one folder: parts of those that are gone do not stay, those of others are never touched, and a process
may end, a clock jump or a file be altered at any point."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpod_runtime.cache.files import file_tier, page_file, page_folder, part
from graphpod_runtime.cache.files.file_tier import FileTier
from graphpod_runtime.cache.files.page_file import BadPage
from graphpod_runtime.cache.files.page_folder import ABANDONED_SECONDS, PageFolder
from tests.unit.runtime.cache.test_file_tier import (
    FILE,
    NOBODY,
    PAGE,
    SIZE,
    Pool,
    content,
    eventually,
    key,
    read,
    save,
)

LONG = ABANDONED_SECONDS + 1


class Clock:
    """Of one process."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


Open = Callable[..., PageFolder]


@pytest.fixture
def opened(tmp_path: Path, clock: Clock) -> Iterator[Open]:
    """opened(files): a process on the folder, with room for so many."""
    folders = list[PageFolder]()

    def begin(files: int = 8) -> PageFolder:
        folders.append(PageFolder(tmp_path, files * FILE, clock))
        folders[-1].look()
        return folders[-1]

    yield begin
    for folder in folders:
        ended(folder)


def ended(folder: PageFolder) -> None:
    if folder._parts:
        folder.close()
        folder._parts.clear()


def filled(folder: PageFolder, *numbers: int, used: float | None = None) -> PageFolder:
    for place, number in enumerate(numbers):
        assert folder.write(key(number), content(number))
        if used is not None:
            folder.touch(key(number), used + place)
    return folder


def on_disk(path: Path) -> list[int]:
    """Pages in all parts, by their numbers."""
    return sorted(bytes.fromhex(file.name)[0] for file in path.glob("*/?*") if len(file.name) == 64)


def test_the_part_of_a_process_that_is_gone_for_long_becomes_that_of_one_that_runs(
    opened: Open, clock: Clock, tmp_path: Path
) -> None:
    """Together they keep the size of one, and of both parts what was used last."""
    gone, runs = opened(files=4), opened(files=4)
    filled(gone, 1, 2, 3, used=1000)
    filled(runs, 4, 5, 6, used=1001.5)
    ended(gone)
    assert runs.look_again() == 0
    assert (runs.has(key(1)), runs.number, on_disk(tmp_path)) == (True, 1, [1, 2, 3, 4, 5, 6])
    clock.now += LONG
    assert runs.look_again() == 3
    assert on_disk(tmp_path) == [3, 4, 5, 6], "used at 1002, 1001.5, 1002.5 and 1003.5"
    assert {file.parent.name for file in tmp_path.glob("*/?*") if len(file.name) == 64} == {"1"}
    assert (runs.used, runs.evicted, len(runs)) == (4 * FILE, 2, 4)
    assert read(runs, 3) == content(3)
    again = opened()
    assert (again.number, again.has(key(3))) == (0, True), "the part is free for the next process"


def test_a_part_that_was_taken_in_part_is_found_in_both_and_gives_way_first(
    opened: Open, clock: Clock, tmp_path: Path
) -> None:
    """The process that takes it ends, and has pages of its own to write."""
    gone, runs = opened(), opened(files=4)
    filled(gone, 1, 2, 3, 4)
    filled(runs, 5, 6)
    ended(gone)
    runs.look_again()
    clock.now += LONG
    assert runs.look_again(lambda: runs.used == 4 * FILE) == 2
    assert on_disk(tmp_path) == [1, 2, 3, 4, 5, 6]
    assert [read(runs, number) for number in (1, 2, 3, 4)] == [content(number) for number in (1, 2, 3, 4)]
    taken = {bytes.fromhex(file.name)[0] for file in (tmp_path / "1").glob("*") if len(file.name) == 64} - {5, 6}
    assert len(taken) == 2
    filled(runs, 7, 8)
    assert on_disk(tmp_path) == sorted({1, 2, 3, 4} - taken | {5, 6, 7, 8})
    assert not any(runs.has(key(number)) for number in taken)
    ended(runs)
    assert opened().number == 0, "what is left is for the next process"


def test_the_part_of_a_process_that_runs_is_never_taken(opened: Open, clock: Clock, tmp_path: Path) -> None:
    first, second = opened(), opened()
    filled(first, 1, 2)
    for _ in range(5):
        clock.now += LONG
        assert first.look_again() == second.look_again() == 0
    assert (first.used, second.used, read(first, 1)) == (2 * FILE, 0, content(1))
    assert second.has(key(1)), "what another one has written since is found"
    assert read(second, 2) == content(2)


def test_a_part_that_a_process_had_in_between_is_free_from_then_on(opened: Open, clock: Clock, tmp_path: Path) -> None:
    gone, runs = opened(), opened()
    filled(gone, 1)
    ended(gone)
    runs.look_again()
    clock.now += 0.9 * ABANDONED_SECONDS
    between = opened()
    assert between.number == 0
    ended(between)
    clock.now += 0.9 * ABANDONED_SECONDS
    assert runs.look_again() == 0
    clock.now += LONG
    assert runs.look_again() == 1


def test_a_clock_that_was_ahead_keeps_no_file_for_ever(opened: Open, tmp_path: Path) -> None:
    filled(first := opened(files=3), 1, 2)
    for number in (1, 2):
        os.utime(tmp_path / "0" / key(number).hex(), (4e9, 4e9))
    ended(first)
    filled(second := opened(files=3), 3, 4, 5)
    assert on_disk(tmp_path) == [3, 4, 5]
    ended(second)
    filled(third := opened(files=3), 6)
    assert on_disk(tmp_path) == [4, 5, 6], "times of files order them, whatever the clock said"
    ended(third)


@pytest.mark.parametrize("moved", range(4))
def test_a_process_that_ends_while_it_takes_a_part_loses_nothing(
    opened: Open, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    gone, runs = opened(), opened()
    filled(gone, 1, 2, 3)
    filled(runs, 4, 1)
    ended(gone)
    runs.look_again()
    clock.now += LONG
    rename, count = os.rename, 0

    class Killed(BaseException):
        pass

    def killed(*arguments: object, **folders: int) -> None:
        nonlocal count
        if count == moved:
            raise Killed
        count += 1
        rename(*arguments, **folders)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "rename", killed)
    if moved < 2:
        with pytest.raises(Killed):
            runs.look_again()
    else:
        runs.look_again()
    monkeypatch.undo()
    ended(runs)
    third, fourth = opened(files=2), opened(files=8)
    assert {*on_disk(tmp_path)} <= {1, 2, 3, 4}
    for number in (2, 3):
        assert third.has(key(number)) or fourth.has(key(number)) or third.evicted
    assert third.used <= 2 * FILE
    ended(fourth)
    third.look_again()
    clock.now += LONG
    third.look_again()
    assert third.used == 2 * FILE == FILE * len(on_disk(tmp_path)), "the size holds over all parts"


WRITES = """
import sys
from pathlib import Path
from graphpod_runtime.cache.files import page_folder
page_folder.ABANDONED_SECONDS = 0.0
folder = page_folder.PageFolder(Path(sys.argv[1]), 40 * 160)
folder.look()
print(folder.number, flush=True)
sys.stdin.readline()
number = 0
while True:
    number += 1
    folder.write((number % 50).to_bytes(32, "big"), memoryview(bytearray([number % 50]) * 96))
    if number % 20 == 0:
        folder.look_again()
    if number == 60:
        print("writes", flush=True)
"""


def test_processes_that_are_killed_leave_whole_pages_and_no_more_than_their_size(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITES, str(tmp_path)]
    for _ in range(2):
        running = list[subprocess.Popen[bytes]]()
        for number in range(2):  # one after the other: who looks at a free part has its lock for a moment
            running.append(one := subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            assert one.stdout is not None
            assert int(one.stdout.readline()) == number
        for one in running:  # not sooner: the first to write would take the free part of the other
            assert one.stdin is not None
            one.stdin.write(b"\n")
            one.stdin.flush()
        assert [one.stdout.readline() for one in running if one.stdout is not None] == [b"writes\n"] * 2
        for one in running:  # stopped first: one that runs on would take the part of the other
            one.send_signal(signal.SIGSTOP)
            os.waitpid(one.pid, os.WUNTRACED)
        for one in running:
            one.kill()
            one.communicate()
    assert all(0 < len([*(tmp_path / part).glob("?" * 64)]) <= 40 for part in "01")
    folder = PageFolder(tmp_path, 40 * FILE)
    folder.look()
    assert not list((tmp_path / "0").glob(f"*{page_file.UNFINISHED}"))
    found = {*folder._own, *folder._others[1]}
    assert len(found) > 10
    for one in found:
        into = memoryview(bytearray(PAGE))
        folder.read(one, into)
        assert into == bytes([one[-1]]) * PAGE
    folder.close()


def test_what_is_in_the_way_of_a_part_leaves_the_next_one(opened: Open, tmp_path: Path) -> None:
    for number, what in enumerate(("link", "file", "link as lock", "folder as lock")):
        match what:
            case "link":
                (tmp_path / str(number)).symlink_to(tmp_path)
            case "file":
                (tmp_path / str(number)).write_text("")
            case "link as lock":
                (tmp_path / str(number)).mkdir()
                (tmp_path / str(number) / part.LOCK).symlink_to("elsewhere")
            case _:
                (tmp_path / str(number) / part.LOCK).mkdir(parents=True)
    folder = opened()
    assert folder.number == 4
    assert not (tmp_path / "elsewhere").exists()
    assert read(filled(folder, 1), 1) == content(1)


@pytest.mark.parametrize("code", [errno.EROFS, errno.ENOSPC, errno.ENOLCK, errno.EACCES])
def test_a_folder_in_which_no_part_can_be_had_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(part.fcntl, "flock", fails)
    before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(OSError, match=os.strerror(code)):
        PageFolder(tmp_path, FILE)
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_files_of_others_that_cannot_be_locked_are_read(
    opened: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's."""
    gone, runs = opened(), opened()
    filled(gone, 1)
    ended(gone)

    def fails(self: part.Part) -> None:
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr(part.Part, "claim", fails)
    clock.now += LONG
    assert runs.look_again() == 0
    assert read(runs, 1) == content(1)


def test_a_part_is_taken_though_the_disk_then_says_nothing_of_the_own_one(
    opened: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that looks is the one that writes: an error would end it."""
    gone, runs = opened(), opened()
    filled(gone, 1)
    filled(runs, 2)
    ended(gone)
    runs.look_again()
    clock.now += LONG
    files = part.Part.files

    def fails(self: part.Part) -> Iterator[part.Found]:
        if self is runs._mine:
            raise OSError(errno.EIO, "no")
        return files(self)

    monkeypatch.setattr(part.Part, "files", fails)
    assert runs.look_again() == 1
    assert (read(runs, 1), read(runs, 2), runs.used) == (content(1), content(2), 2 * FILE)


def test_more_files_than_are_looked_at_go(opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(first := opened(), 1, 2, 3, 4, 5)
    ended(first)
    monkeypatch.setattr(part, "MOST_FILES", 3)
    monkeypatch.setattr(page_folder, "MOST_FILES", 3)
    second = opened()
    assert (len(second), len(on_disk(tmp_path)), second.used) == (3, 3, 3 * FILE)
    filled(second, 6)
    assert (len(second), len(on_disk(tmp_path))) == (3, 3)


def test_what_another_process_writes_is_found_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that stops writes most of its pages when the next one runs already."""
    monkeypatch.setattr(file_tier, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(file_tier, "LOOK_SHARE", 1.0)
    tiers = [FileTier(PageFolder(tmp_path, 8 * FILE), b"identity", SIZE, Pool()) for _ in range(2)]
    for tier in tiers:
        tier.begin()
        assert tier.looked.wait(20)
    save(tiers[0], list(range(3 * SIZE)), [0, 1, 2])
    eventually(lambda: len(tiers[1].known(NOBODY, list(range(3 * SIZE)), 0, 3)) == 3)
    for tier in tiers:
        tier.close()
    assert not any(thread.is_alive() for tier in tiers for thread in tier._threads)


@given(st.integers(0, FILE - 1), st.integers(1, 255), st.booleans())
def test_a_page_with_any_other_bit_or_length_is_none(
    tmp_path_factory: pytest.TempPathFactory, place: int, flip: int, cut: bool
) -> None:
    path = tmp_path_factory.mktemp("folder")
    folder = PageFolder(path, 8 * FILE)
    filled(folder, 1)
    file = path / "0" / key(1).hex()
    altered = bytearray(file.read_bytes())
    altered[place] ^= flip
    file.write_bytes(altered[:place] if cut else altered)
    with pytest.raises(BadPage):
        read(folder, 1)
    folder.close()


def test_pages_whose_files_were_swapped_are_none(opened: Open, tmp_path: Path) -> None:
    folder = filled(opened(), 1, 2)
    one, other = (tmp_path / "0" / key(number).hex() for number in (1, 2))
    one.rename(tmp_path / "aside")
    other.rename(one)
    (tmp_path / "aside").rename(other)
    for number in (1, 2):
        with pytest.raises(BadPage):
            read(folder, number)


def test_a_file_that_is_replaced_or_cut_while_it_is_read_gives_its_page_or_none(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, preadv = filled(opened(), 1, 2), os.preadv
    one, other = (tmp_path / "0" / key(number).hex() for number in (1, 2))

    def replaced(file: int, parts: list[memoryview], at: int) -> int:
        if at == 0:
            done = preadv(file, [parts[0][:20]], at)
            other.replace(one)
            return done
        return preadv(file, parts, at)

    def cut(file: int, parts: list[memoryview], at: int) -> int:
        if at == 0:
            done = preadv(file, [parts[0][:20]], at)
            os.truncate(one, 30)
            return done
        return preadv(file, parts, at)

    monkeypatch.setattr(os, "preadv", replaced)
    assert read(folder, 1) == content(1), "the file that was opened"
    monkeypatch.setattr(os, "preadv", preadv)
    filled(folder, 1)
    monkeypatch.setattr(os, "preadv", cut)
    with pytest.raises(BadPage, match="ends too early"):
        read(folder, 1)
