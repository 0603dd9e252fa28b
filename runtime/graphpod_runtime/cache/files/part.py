"""A part of a folder of pages: a numbered folder in it, in which one process at a time writes and deletes.

That one has a lock on a file in it, which the system takes back when the process ends, however it does. It has also
written a word of its own there: a part whose lock is free and whose word has not changed had no process in between, and
no clock of a file is needed to know that.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from graphpod_runtime.cache.files import page_file

LOCK = "lock"
WORD_BYTES = 16
MOST_FILES = 1 << 20
"""That are looked at in a part: 200 MiB of memory."""
NAME_LENGTH = 64
"""Of a key in hexadecimal digits."""
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Found(NamedTuple):
    """A file of a page."""

    used: float
    """When, as the file says."""
    key: bytes
    bytes: int


class Part:
    """An open one. OSError where there is none."""

    def __init__(self, folder: int, number: int) -> None:
        self.number = number
        self.descriptor = os.open(str(number), DIRECTORY, dir_fd=folder)
        self._lock: int | None = None

    def claim(self) -> bytes | None:
        """Takes the lock, and gives the word of the one that had it last; None: a process has it. OSError where there
        can be no lock."""
        lock = os.open(LOCK, page_file.OPEN | os.O_RDWR | os.O_CREAT, 0o600, dir_fd=self.descriptor)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            word = os.pread(lock, WORD_BYTES, 0)
        except BlockingIOError:
            os.close(lock)
            return None
        except OSError:
            os.close(lock)
            raise
        self._lock = lock
        return word

    def sign(self) -> None:
        """The lock, which this process has, gets its word. A full disk takes none: others may believe that the part has
        had no process."""
        assert self._lock is not None
        with suppress(OSError):
            os.pwrite(self._lock, os.urandom(WORD_BYTES), 0)

    def release(self) -> None:
        """Others may have it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def close(self) -> None:
        self.release()
        os.close(self.descriptor)

    @property
    def changed(self) -> int:
        """When a file came or went last: another value is another state."""
        return os.fstat(self.descriptor).st_mtime_ns

    def keys(self) -> Iterator[bytes]:
        """Of what has the name of a page and is a plain file."""
        with os.scandir(self.descriptor) as entries:
            for entry in islice(entries, MOST_FILES):
                if (key := key_of(entry.name)) is not None and entry.is_file(follow_symlinks=False):
                    yield key

    def files(self) -> Iterator[Found]:
        """Of a part that this process has: those of pages. What was not finished goes, and so does what is too much."""
        count = 0
        with os.scandir(self.descriptor) as entries:
            for entry in entries:
                key = key_of(entry.name)
                if entry.name.endswith(page_file.UNFINISHED) or (key is not None and count == MOST_FILES):
                    with suppress(OSError):
                        os.unlink(entry.name, dir_fd=self.descriptor)
                elif key is not None:
                    with suppress(OSError):
                        there = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(there.st_mode):
                            count += 1
                            yield Found(there.st_mtime, key, there.st_size)

    def move(self, key: bytes, to: "Part") -> bool:
        """Whether the page is in that part now; both are this process's."""
        try:
            os.rename(key.hex(), key.hex(), src_dir_fd=self.descriptor, dst_dir_fd=to.descriptor)
        except OSError:
            return False
        return True

    def delete(self, key: bytes) -> None:
        with suppress(OSError):
            os.unlink(key.hex(), dir_fd=self.descriptor)


def claimed(folder: int, parts: int) -> Part:
    """The first of so many parts that no process has, signed. What is no folder is passed over. The first OSError where
    no part can be had; BlockingIOError: processes have them all."""
    failed: OSError = BlockingIOError(errno.EAGAIN, f"running processes have all of its {parts} parts")
    for number in range(parts):
        try:
            with suppress(FileExistsError):
                os.mkdir(str(number), 0o700, dir_fd=folder)
            part = Part(folder, number)
        except OSError as error:
            failed = error if isinstance(failed, BlockingIOError) else failed
            continue
        try:
            if part.claim() is not None:
                part.sign()
                return part
        except OSError as error:
            failed = error if isinstance(failed, BlockingIOError) else failed
        part.close()
    raise failed


def key_of(name: str) -> bytes | None:
    """Of a file's name; None: it is no page's."""
    if len(name) != NAME_LENGTH or name != name.lower():
        return None
    try:
        return bytes.fromhex(name)
    except ValueError:
        return None
