"""The claim: which folders leave it, full disks, one writer, and what a kill in the worst moment leaves."""

import errno
import hashlib
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpod_sources import manifest
from graphpod_sources.cache.contents import FOREIGN, Kept, contents
from graphpod_sources.cache.eviction import leaving
from graphpod_sources.cache.lock import Lock
from graphpod_sources.cache.room import Room
from graphpod_sources.listing import RemoteFile
from graphpod_sources.problem import Problem, Reason
from graphpod_sources.transfer.finished import Finished
from graphpod_sources.transfer.part import FOLDER, Part
from graphpod_sources.transfer.spans import count, joined, missing
from tests.unit.sources.fetching import MODEL, Fetched, put, there

FOLDERS = [
    Kept("old", 100, "2026-01-01T00:00:00Z"),
    Kept("new", 100, "2026-02-01T00:00:00Z"),
    Kept("alien", 50, FOREIGN),
]
FREE = 10_000


def names(*keep: str, needed: int, limit: int | None = 300, free: int = FREE) -> list[str]:
    gone = leaving(FOLDERS, name="mine", keep=keep, needed=needed, limit=limit, free=free, cache="/models")
    return [folder.name for folder in gone]


def test_the_least_recently_used_folders_leave_first_and_no_more_than_needed() -> None:
    assert names(needed=50) == []
    assert names(needed=100) == ["old"]
    assert names(needed=200) == ["old", "new"]
    assert names("old", needed=100) == ["new"]


def test_what_is_in_use_or_not_ours_never_leaves() -> None:
    for keep in (("old", "new"), ()):
        with pytest.raises(Problem) as caught:
            names(*keep, needed=251)
        assert caught.value.reason is Reason.DiskFull
        assert "300 B" in caught.value.what


def test_a_disk_that_is_fuller_than_the_limit_says_counts() -> None:
    assert names(needed=50, free=0) == ["old"]
    assert names(needed=50, free=0, limit=10_000) == ["old"]
    with pytest.raises(Problem, match="40 B are lacking"):
        names(needed=50, free=10, limit=None)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50), st.booleans(), st.booleans()), max_size=8),
    st.integers(0, 200),
    st.integers(0, 200),
    st.integers(0, 200),
)
def test_evictions_make_room_or_take_nothing(
    rows: list[tuple[int, int, bool, bool]], needed: int, limit: int, free: int
) -> None:
    kept = [Kept(f"f{n}", size, str(used) if ours else FOREIGN) for n, (used, size, ours, _) in enumerate(rows)]
    keep = {f"f{n}" for n, row in enumerate(rows) if row[3]}
    held = sum(folder.bytes for folder in kept)
    try:
        gone = leaving(kept, name="f0", keep=keep, needed=needed, limit=limit, free=free, cache="/models")
    except Problem:
        most = sum(f.bytes for f in kept if f.ours and f.name not in keep and f.name != "f0")
        assert held - most + needed > limit or needed > free + most
        return
    freed = sum(folder.bytes for folder in gone)
    assert held - freed + needed <= limit or needed == 0 or not gone
    assert needed <= free + freed
    assert not {folder.name for folder in gone} & (keep | {"f0"})
    assert all(folder.ours for folder in gone)
    oldest = [folder.used for folder in gone]
    assert oldest == sorted(oldest)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=8), st.integers(0, 60), st.integers(1, 20))
def test_what_is_missing_and_what_is_there_are_the_whole_file(
    spans: list[tuple[int, int]], size: int, piece: int
) -> None:
    have = {byte for start, end in spans for byte in range(start, min(end, size))}
    lack = missing(spans, size, piece)
    assert sorted(byte for start, end in lack for byte in range(start, end)) == sorted(set(range(size)) - have)
    assert all(0 < end - start <= piece for start, end in lack)
    assert count(joined(spans)) == len({byte for start, end in spans for byte in range(start, end)})


@pytest.fixture
def source(tmp_path: Path) -> str:
    return f"file://{put(tmp_path / 'source', MODEL)}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


@pytest.mark.parametrize("name", [manifest.NAME, f"{manifest.NAME}.tmp", f"{FOLDER}/finished", f"{FOLDER}/x.journal"])
def test_a_named_pipe_in_the_place_of_a_file_of_ours_holds_no_fetch(source: str, root: Path, name: str) -> None:
    path = root / "a" / name
    path.parent.mkdir(parents=True)
    (root / "a" / FOLDER).mkdir(exist_ok=True)
    if path.suffix == ".journal":
        stem = hashlib.sha256(b"model.safetensors").hexdigest()[:24]
        path = path.with_stem(stem)
    os.mkfifo(path)
    fetched: list[Fetched] = []
    fetch = threading.Thread(target=lambda: fetched.append(Fetched(source, root, name="a")), daemon=True)
    fetch.start()
    fetch.join(20)
    assert fetched, "it waits for ever"
    assert fetched[0].problem is None


def test_models_leave_a_cache_that_is_full_in_the_order_of_their_use(source: str, root: Path) -> None:
    for name, used in (("a", "2026-01-01T00:00:00Z"), ("b", "2026-02-01T00:00:00Z"), ("c", "2026-03-01T00:00:00Z")):
        whole = Fetched(source, root, name=name).manifest
        assert whole is not None
        manifest.write(root / name, replace(whole, used=used))
    put(root / "alien", {"data": bytes(1000)})
    Fetched(source, root, name="a")  # used now
    one = next(folder.bytes for folder in contents(root) if folder.name == "a")
    done = Fetched(source, root, name="d", size=3 * one + 100_000, keep=["b"])
    assert done.problem is None
    assert {path.name for path in root.iterdir() if not path.name.startswith(".")} == {"a", "b", "d", "alien"}
    assert [line for line in done.log if line.startswith("evicted")] == [
        next(line for line in done.log if "evicted c" in line)
    ]
    full = Fetched(source, root, name="e", size=2 * one, keep=["a", "b", "d"])
    assert full.reason is Reason.DiskFull
    assert {path.name for path in root.iterdir()} >= {"a", "b", "d", "alien"}


def test_a_folder_that_may_not_be_read_is_somebody_elses(
    source: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root / "lost+found", {"x": bytes(5000)})
    Fetched(source, root, name="ours")
    real = Path.lstat

    def denied(path: Path) -> os.stat_result:
        if path.parent.name == "lost+found" and path.name.startswith("."):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(Path, "lstat", denied)
    assert {folder.name: folder.ours for folder in contents(root)} == {"lost+found": False, "ours": True}


def test_a_part_of_other_content_does_not_take_a_finished_files_name(root: Path) -> None:
    folder = root / "model"
    first, second = (RemoteFile("a.safetensors", 4, "a", sha256=word * 64) for word in "ab")
    part = Part(folder, second)
    part.open()
    part.write(0, b"othr")
    part.keep(0, 4)
    finished = Finished(folder)
    finished.add(first.path, 4, first.identity)
    assert not finished.has(first)
    assert not (folder / "a.safetensors").exists()
    assert Part(folder, second).open() == 4


def test_a_finished_file_that_was_lost_does_not_vouch_for_its_next_part(root: Path) -> None:
    folder = root / "model"
    file = RemoteFile("a.safetensors", 4, "a", sha256="a" * 64)
    Finished(folder).add(file.path, 4, file.identity)
    assert not Finished(folder).has(file), "its file was removed"
    part = Part(folder, file)
    part.open()
    part.write(3, b"t")  # the last piece came first: the part has its size, and a hole
    part.keep(3, 4)
    part.close()
    assert not Finished(folder).has(file)
    assert not (folder / "a.safetensors").exists()


def test_a_folder_that_is_being_written_does_not_leave(source: str, root: Path) -> None:
    Fetched(source, root, name="busy")
    lock = Lock(root, "busy")
    assert lock.take()
    assert Fetched(source, root, size=4_000_000).reason is Reason.DiskFull
    lock.release()
    assert Fetched(source, root, size=4_000_000).problem is None
    assert not (root / "busy").exists()


def test_a_disk_without_room_is_found_before_anything_is_loaded(
    source: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Room, "free", lambda room: 1_000_000)
    done = Fetched(source, root)
    assert done.reason is Reason.DiskFull
    assert done.progress.received == 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_up_ends_the_fetch_and_what_came_is_kept(
    source: str, root: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    real, calls = os.pwrite, []

    def full(descriptor: int, data: Any, at: int) -> int:
        calls.append(at)
        if len(calls) > 4:
            raise OSError(number, os.strerror(number))
        return real(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", full)
    first = Fetched(source, root)
    assert first.reason is Reason.DiskFull
    assert first.problem is not None
    assert "spec.model.cache.size" in first.problem.message
    monkeypatch.setattr(os, "pwrite", real)
    second = Fetched(source, root)
    assert second.problem is None
    assert there(root / "model") == MODEL
    assert second.progress.received < sum(map(len, MODEL.values()))


def test_a_second_writer_waits_and_finds_the_folder_complete(source: str, root: Path) -> None:
    lock = Lock(root, "model")
    assert lock.take()
    assert not Lock(root, "model").take()
    done: list[Fetched] = []
    waiting = threading.Thread(target=lambda: done.append(Fetched(source, root)))
    waiting.start()
    lock.release()
    first = Fetched(source, root)
    waiting.join(30)
    received = [first.progress.received, done[0].progress.received]
    assert sorted(received) == [0, sum(map(len, MODEL.values()))]


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("moment", ["before the name", "after the name", "before the manifest", "after the manifest"])
def test_a_kill_around_a_rename_costs_no_finished_file(
    source: str, root: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    def killing(real: Callable[..., Any], *, after: bool) -> Callable[..., Any]:
        def instead(*args: Any) -> Any:
            if after:
                real(*args)
            raise Killed

        return instead

    what, name = (Part, "place") if "name" in moment else (manifest, "write")
    with monkeypatch.context() as patch:
        patch.setattr(what, name, killing(getattr(what, name), after="after" in moment))
        try:
            first = Fetched(source, root).progress.received
        except Killed:
            first = None
    assert (manifest.read(root / "model") is not None) == (moment == "after the manifest")
    second = Fetched(source, root)
    assert second.problem is None
    assert there(root / "model") == MODEL
    total = sum(map(len, MODEL.values()))
    assert second.progress.received == (total - first if first is not None else 0)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"3", b'{"files": 1}', b"[" * 100_000, b"\xff", b'{"files": [{}]}']
)
def test_a_manifest_that_cannot_be_read_is_no_manifest(source: str, root: Path, content: bytes) -> None:
    put(root / "model", {manifest.NAME: content})
    assert manifest.read(root / "model") is None
    assert Fetched(source, root).problem is None
    assert there(root / "model") == MODEL
