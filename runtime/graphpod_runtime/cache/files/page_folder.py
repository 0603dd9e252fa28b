"""A bounded folder of pages, the least recently used first to go.

Processes may share a folder. Each has a part of it to itself, by a lock on a file that the system takes back when the
process ends, and writes and deletes there only. It reads from all parts that were there when it looked: what a pod
leaves behind serves the one that follows it, which may have another part. The time of a file says when it was used.

The index is in memory, and rebuilt from names and sizes by one look at the folder. Until then nothing is found.
"""

import errno
import fcntl
import os
import stat
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from graphpod_runtime.cache.files import page_file

PARTS = 64
"""Processes that can share a folder."""
LOCK = "lock"
MOST_FILES = 1 << 20
"""That are looked at in a part."""
NAME_LENGTH = 64
"""Of a key in hexadecimal digits."""


class NoPart(OSError):
    """All parts of the folder belong to running processes."""


class Found(NamedTuple):
    """A file that the first look has found."""

    used: float
    key: bytes
    part: int
    bytes: int


class PageFolder:
    """The part of one process. `has` is for any thread at any time; one thread writes, others read."""

    def __init__(self, path: Path, size: int) -> None:
        """`size`: bytes of the part's files, at most. OSError where the folder cannot be used. It is made if its parent
        is there."""
        self.size = size
        self.used = self.evicted = 0
        """Bytes of the part's files, and files that went to make room."""
        self._path = path
        with suppress(FileExistsError):
            path.mkdir(0o700)
        self._folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._number = -1
        self._parts: dict[int, int] = {}
        """Open folders, by number."""
        try:
            self._claim()
        except OSError:
            self.close()
            raise
        self._own: OrderedDict[bytes, int] = OrderedDict()
        """Bytes of the files of this part, by key, the least recently used first."""
        self._others: dict[bytes, int] = {}
        """Parts of the pages that other parts have."""
        self._change = threading.Lock()

    def look(self) -> None:
        """Finds what is there, before anything is written. Files that have no room go, and so does what was not
        finished."""
        found = list[Found]()
        for number in range(PARTS):
            with suppress(OSError):
                found += self._look_at(number)
        with self._change:
            for one in sorted(found):
                if one.part == self._number:
                    self._own[one.key] = one.bytes
                    self.used += one.bytes
                else:
                    self._others[one.key] = one.part
        self._make_room(0)

    def has(self, key: bytes) -> bool:
        """Whether a file has it, as far as known."""
        return key in self._own or key in self._others

    def __len__(self) -> int:
        return len(self._own) + len(self._others)

    def touch(self, key: bytes, used: float | None = None) -> None:
        """It was used last, which the file says of that time; None: now."""
        with self._change:
            if key in self._own:
                self._own.move_to_end(key)
            part = self._part_of(key)
        with suppress(OSError):
            times = None if used is None else (used, used)
            os.utime(key.hex(), times, dir_fd=self._parts[part], follow_symlinks=False)

    def write(self, key: bytes, content: memoryview) -> bool:
        """Whether the page is in a file now: not one that is larger than all there may be. OSError, and nothing
        written."""
        count = page_file.file_bytes(len(content))
        if count > self.size:
            return False
        self._make_room(count)
        page_file.write(self._parts[self._number], key.hex(), key, content)
        with self._change:
            self._own[key] = count
            self.used += count
        return True

    def read(self, key: bytes, into: memoryview) -> None:
        """Fills `into`; BadPage or OSError, and the file is not found again."""
        part = self._part_of(key)
        try:
            page_file.read(self._parts[part], key.hex(), key, into)
        except (OSError, page_file.BadPage):
            self._forget(key, part)
            raise

    def shrink(self) -> None:
        """The disk is full: an eighth of the part's files go, at least one."""
        self._make_room(self.size - self.used + max(1, self.used // 8))

    def close(self) -> None:
        """Others may have the part."""
        for folder in (*self._parts.values(), self._folder):
            os.close(folder)
        if self._number >= 0:
            os.close(self._lock)

    def _claim(self) -> None:
        """The first part that no running process has."""
        for number in range(PARTS):
            with suppress(FileExistsError):
                os.mkdir(str(number), 0o700, dir_fd=self._folder)
            try:
                part = self._open_part(number)
            except OSError as error:
                if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                    raise
                continue
            try:
                self._lock = os.open(LOCK, page_file.OPEN | os.O_RDWR | os.O_CREAT, 0o600, dir_fd=part)
                try:
                    fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    os.close(self._lock)
                    raise
            except OSError as error:
                os.close(part)
                if isinstance(error, BlockingIOError):
                    continue
                raise
            self._number, self._parts[number] = number, part
            return
        raise NoPart(f"{self._path}: running processes have all of its {PARTS} parts")

    def _open_part(self, number: int) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(str(number), flags, dir_fd=self._folder)

    def _look_at(self, number: int) -> list[Found]:
        if number not in self._parts:
            self._parts[number] = self._open_part(number)
        own, found = number == self._number, list[Found]()
        with os.scandir(self._parts[number]) as entries:
            for entry, _ in zip(entries, range(MOST_FILES), strict=False):
                if own and entry.name.endswith(page_file.UNFINISHED):
                    with suppress(OSError):
                        os.unlink(entry.name, dir_fd=self._parts[number])
                elif (key := _key(entry.name)) is not None:
                    with suppress(OSError):
                        there = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(there.st_mode):
                            found.append(Found(there.st_mtime, key, number, there.st_size))
        return found

    def _make_room(self, count: int) -> None:
        """So many bytes more have room. Files of others stay where they are."""
        gone = list[bytes]()
        with self._change:
            while self._own and self.used + count > self.size:
                key, size = self._own.popitem(last=False)
                self.used -= size
                gone.append(key)
        self.evicted += len(gone)
        for key in gone:
            self._delete(key)

    def _part_of(self, key: bytes) -> int:
        return self._number if key in self._own else self._others.get(key, self._number)

    def _forget(self, key: bytes, part: int) -> None:
        if part != self._number:
            self._others.pop(key, None)
            return
        with self._change:
            self.used -= self._own.pop(key, 0)
        self._delete(key)

    def _delete(self, key: bytes) -> None:
        with suppress(OSError):
            os.unlink(key.hex(), dir_fd=self._parts[self._number])


def _key(name: str) -> bytes | None:
    """Of a file's name; None: it is no page's."""
    if len(name) != NAME_LENGTH or name != name.lower():
        return None
    try:
        return bytes.fromhex(name)
    except ValueError:
        return None
