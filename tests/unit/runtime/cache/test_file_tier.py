"""Pages go to files and come back: whole, to the same key only, and whatever happens to the disk."""

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphpod_runtime.cache.files import page_file
from graphpod_runtime.cache.files.file_tier import MOST_TOKENS, FileFailure, FileTier, Left, Reading
from graphpod_runtime.cache.files.identity import identity
from graphpod_runtime.cache.files.page_folder import PageFolder
from graphpod_runtime.cache.files.page_keys import page_keys

SIZE, PAGE = 4, 96
NOBODY = "", ""
FILE = page_file.file_bytes(PAGE)


class Pool:
    """Is Slots."""

    page_bytes = PAGE

    def __init__(self, slots: int = 8) -> None:
        self.memory = torch.zeros((slots, PAGE), dtype=torch.uint8)

    def content(self, slot: int) -> memoryview:
        return memoryview(self.memory[slot].numpy())

    def drain(self) -> None:
        pass


def key(number: int) -> bytes:
    return bytes([number]) * 32


def content(number: int) -> memoryview:
    return memoryview(bytearray([number]) * PAGE)


def opened(path: Path, files: int = 8) -> PageFolder:
    folder = PageFolder(path, files * FILE)
    folder.look()
    return folder


def read(folder: PageFolder, number: int) -> memoryview:
    into = memoryview(bytearray(PAGE))
    folder.read(key(number), into)
    return into


@pytest.fixture
def tier(tmp_path: Path) -> Iterator[FileTier]:
    tier = FileTier(PageFolder(tmp_path, 8 * FILE), b"identity", SIZE, Pool())
    tier.begin()
    yield tier
    tier.close()


def eventually(done: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not done():
        assert time.monotonic() < until, "nothing came of it"
        time.sleep(0.001)


def save(tier: FileTier, tokens: list[int], slots: list[int], first: int = 0, salt: str = "") -> None:
    tier.save(Left(("", salt), tokens, first, [(slot, tier.number(slot)) for slot in slots]))


def fetched(tier: FileTier, tokens: list[int], slots: list[int]) -> Reading:
    reading = Reading(tier.known(NOBODY, tokens, 0, len(slots)), slots, 0.0)
    tier.fetch(reading)
    eventually(lambda: reading.landed)
    return reading


@given(
    st.lists(st.integers(0, 3), max_size=20),
    st.lists(st.integers(0, 3), max_size=20),
    st.sampled_from([("", ""), ("a", ""), ("", "a"), ("a", "b"), ("ab", "")]),
    st.sampled_from([("", ""), ("a", ""), ("", "a"), ("a", "b"), ("ab", "")]),
    st.integers(0, 5),
)
def test_pages_have_one_key_where_namespace_and_all_tokens_up_to_their_end_are_the_same(
    ours: list[int], theirs: list[int], own: tuple[str, str], other: tuple[str, str], first: int
) -> None:
    of_ours, of_theirs = (list(page_keys(b"i", space, text, SIZE, 0)) for space, text in ((own, ours), (other, theirs)))
    assert len(of_ours) == len(ours) // SIZE
    assert list(page_keys(b"i", own, ours, SIZE, first)) == of_ours[first:]
    assert not set(page_keys(b"j", own, ours, SIZE, 0)) & {*of_ours, *of_theirs}
    for end in range(1, min(len(of_ours), len(of_theirs)) + 1):
        alike = own == other and ours[: end * SIZE] == theirs[: end * SIZE]
        assert (of_ours[end - 1] == of_theirs[end - 1]) is alike


def test_the_identity_is_of_weights_and_words(tmp_path: Path) -> None:
    weight = torch.arange(12, dtype=torch.float32).view(3, 4)
    found = {
        identity(words, tensors)
        for words, tensors in (
            ({"model": 1}, [("w", weight)]),
            ({"model": 2}, [("w", weight)]),
            ({"model": 1}, [("v", weight)]),
            ({"model": 1}, [("w", weight.flip(0).contiguous())]),
            ({"model": 1}, [("w", weight.to(torch.bfloat16))]),
            ({"model": 1}, [("w", weight.view(4, 3))]),
            ({"model": 1}, [("w", weight), ("v", torch.empty(0))]),
        )
    }
    assert len(found) == 7
    strided = torch.zeros(3, 9)[:, :4].copy_(weight)
    assert not strided.is_contiguous()
    before = identity({}, [("w", strided)])
    assert identity({}, [("w", strided)]) == before
    strided[1, 1] = 9
    assert identity({}, [("w", strided)]) != before
    assert identity({}, [("b", torch.tensor([True, False, True]))]) != identity({}, [("b", torch.tensor([True] * 3))])


def test_a_page_comes_back_after_a_restart_and_others_do_not(tmp_path: Path) -> None:
    folder = opened(tmp_path)
    assert folder.write(key(1), content(7))
    folder.close()
    again = opened(tmp_path)
    assert (again.has(key(1)), again.has(key(2)), again.used, len(again)) == (True, False, FILE, 1)
    assert read(again, 1) == content(7)
    again.close()


@given(st.lists(st.tuples(st.sampled_from(["write", "read", "restart"]), st.integers(1, 9)), max_size=40))
def test_the_folder_is_a_dictionary_of_the_pages_that_were_used_last(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    path, files = tmp_path_factory.mktemp("folder"), 4
    folder, model = opened(path, files), list[int]()
    for clock, (what, number) in enumerate(steps):
        if what == "restart":
            folder.close()
            folder = opened(path, files)
        elif what == "write" and number not in model:
            assert folder.write(key(number), content(number))
            model = [*model, number][-files:]
        elif number in model:
            assert read(folder, number) == content(number)
            model = [*(one for one in model if one != number), number]
        if number in model:
            os.utime(path / "0" / key(number).hex(), (clock, clock))
        assert [one for one in range(1, 10) if folder.has(key(one))] == sorted(model)
        assert folder.used == len(model) * FILE == sum(one.stat().st_size for one in (path / "0").glob("?" * 64))
    folder.close()


def test_a_smaller_size_after_a_restart_takes_what_was_used_longest_ago(tmp_path: Path) -> None:
    folder = opened(tmp_path)
    for number in range(4):
        folder.write(key(number), content(number))
        os.utime(tmp_path / "0" / key(number).hex(), (number, number))
    folder.close()
    folder = opened(tmp_path, files=2)
    assert [folder.has(key(number)) for number in range(4)] == [False, False, True, True]
    assert not folder.write(key(9), memoryview(bytearray(3 * FILE)))
    folder.close()


def test_two_engines_on_one_folder_read_from_each_other_and_write_apart(tmp_path: Path) -> None:
    first = opened(tmp_path, files=2)
    first.write(key(1), content(1))
    second = opened(tmp_path, files=2)
    assert read(second, 1) == content(1)
    for number in range(2, 6):
        second.write(key(number), content(number))
    assert (first.has(key(1)), second.used, read(first, 1)) == (True, 2 * FILE, content(1))
    assert second.has(key(1)), "a page of another part takes nothing from this one"
    first.write(key(7), content(7))
    first.write(key(8), content(8))
    with pytest.raises(FileNotFoundError):
        read(second, 1)
    assert not second.has(key(1))
    first.close()
    third = opened(tmp_path)
    assert read(third, 5) == content(5)
    assert third.used == 2 * FILE, "it has the part of the first"
    third.close()
    second.close()


def test_as_many_processes_as_there_are_parts_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphpod_runtime.cache.files.page_folder.PARTS", 2)
    both = [PageFolder(tmp_path, FILE) for _ in range(2)]
    with pytest.raises(BlockingIOError, match="running processes have all of its 2 parts"):
        PageFolder(tmp_path, FILE)
    both[0].close()
    PageFolder(tmp_path, FILE).close()
    both[1].close()


def _shortened(file: Path) -> None:
    os.truncate(file, FILE - 1)


def _altered(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(FILE - 1)
        opened.write(b"\xff")


def _of_another_key(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(key(1), key(2)))


def _linked(file: Path) -> None:
    file.rename(file.with_name("other"))
    file.symlink_to("other")


def _fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


BROKEN: list[Callable[[Path], None]] = [_shortened, _altered, _of_another_key, _linked, _fifo, _folder]


@pytest.mark.parametrize("spoil", BROKEN)
def test_what_is_no_page_any_more_is_never_read_again(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    folder = opened(tmp_path)
    folder.write(key(1), content(1))
    spoil(tmp_path / "0" / key(1).hex())
    with pytest.raises((page_file.BadPage, OSError)):
        read(folder, 1)
    assert (folder.has(key(1)), folder.used) == (False, 0)
    folder.close()


@pytest.mark.parametrize("spoil", [_linked, _fifo, _folder])
def test_what_is_no_plain_file_is_not_found_after_a_restart(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    folder = opened(tmp_path)
    folder.write(key(1), content(1))
    folder.close()
    spoil(tmp_path / "0" / key(1).hex())
    (tmp_path / "0" / "notes.txt").write_text("not ours")
    (tmp_path / "0" / (key(3).hex() + page_file.UNFINISHED)).write_text("half")
    folder = opened(tmp_path)
    assert len(folder) == 0
    assert (tmp_path / "0" / "notes.txt").exists()
    assert not list((tmp_path / "0").glob(f"*{page_file.UNFINISHED}"))
    folder.close()


def test_a_part_that_is_a_link_is_left_alone(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "kv").mkdir()
    (tmp_path / "kv" / "0").symlink_to(outside)
    folder = opened(tmp_path / "kv")
    folder.write(key(1), content(1))
    assert not list(outside.iterdir())
    assert (tmp_path / "kv" / "1" / key(1).hex()).is_file()
    folder.close()


def test_pages_are_written_and_read_by_threads(tier: FileTier) -> None:
    text = list(range(3 * SIZE))
    for slot in range(3):
        tier.pool.content(slot)[:] = bytes([slot + 1]) * PAGE
    save(tier, text, [1, 2], first=1)
    save(tier, text[:SIZE], [0])
    eventually(lambda: tier.written == 3)
    assert len(tier.known(NOBODY, text, 0, 9)) == 3
    assert tier.known(("", "tenant"), text, 0, 9) == []
    reading = fetched(tier, text, [5, 6, 7])
    assert (reading.whole, tier.read) == (3, 3)
    assert [tier.pool.content(slot)[PAGE - 1] for slot in (5, 6, 7)] == [1, 2, 3]
    save(tier, text, [0, 1, 2])
    save(tier, [9] * SIZE, [0])
    eventually(lambda: tier.written == 4)
    assert tier.failures == dict.fromkeys(FileFailure, 0), "what is in files is not written again"


def test_a_page_whose_slot_was_reused_is_not_written(tier: FileTier) -> None:
    left = Left(NOBODY, [1] * SIZE, 0, [(0, tier.number(0))])
    tier.reused([0])
    tier.save(left)
    eventually(lambda: tier.failures[FileFailure.Overtaken])
    assert tier.known(NOBODY, [1] * SIZE, 0, 1) == []
    tier.save(Left(NOBODY, [1] * (MOST_TOKENS + 1), 0, [(0, 0), (1, 0)]))
    assert tier.failures[FileFailure.Overtaken] == 3, "texts that wait for a slow disk are bounded"


def test_the_pages_behind_one_that_is_lost_do_not_count(tier: FileTier) -> None:
    text = list(range(3 * SIZE))
    save(tier, text, [0, 1, 2])
    eventually(lambda: tier.written == 3)
    keys = tier.known(NOBODY, text, 0, 3)
    part = Path(f"/proc/self/fd/{tier.folder._parts[0].descriptor}")
    _altered(part / keys[1].hex())
    reading = fetched(tier, text, [3, 4, 5])
    assert (reading.whole, tier.failures[FileFailure.Corrupt]) == (1, 1)
    (part / keys[0].hex()).unlink()
    assert fetched(tier, text, [3]).whole == 0
    assert tier.failures[FileFailure.Missing] == 1


@pytest.mark.parametrize(
    ("code", "reason"),
    [(errno.ENOSPC, FileFailure.Full), (errno.EDQUOT, FileFailure.Full), (errno.EIO, FileFailure.Write)],
)
def test_a_disk_that_takes_nothing_is_counted_and_gets_room(
    tier: FileTier, monkeypatch: pytest.MonkeyPatch, code: int, reason: FileFailure
) -> None:
    save(tier, [1] * SIZE, [0])
    eventually(lambda: tier.written == 1)
    with monkeypatch.context() as patched:
        real, here = os.writev, threading.get_ident()

        def full(file: int, parts: list[memoryview]) -> int:
            if threading.get_ident() == here:
                return real(file, parts)
            real(file, [parts[0][:10]])
            raise OSError(code, "no")

        patched.setattr(os, "writev", full)
        save(tier, [2] * SIZE, [1])
        eventually(lambda: tier.failures[reason] == 1)
    eventually(lambda: tier.folder.used == (0 if reason is FileFailure.Full else FILE))
    assert not list(Path(f"/proc/self/fd/{tier.folder._parts[0].descriptor}").glob(f"*{page_file.UNFINISHED}"))
    save(tier, [2] * SIZE, [1])
    eventually(lambda: tier.written == 2)


def test_writes_and_reads_in_pieces_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writev, preadv = os.writev, os.preadv
    monkeypatch.setattr(os, "writev", lambda file, parts: writev(file, [parts[0][:7]]))
    monkeypatch.setattr(os, "preadv", lambda file, parts, at: preadv(file, [parts[0][:11]], at))
    folder = opened(tmp_path)
    folder.write(key(1), content(9))
    assert read(folder, 1) == content(9)
    folder.close()
