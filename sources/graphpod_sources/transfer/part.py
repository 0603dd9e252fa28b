"""A file on its way: `.partial/NAME.part` with its bytes, `.partial/NAME.journal` with which of them are on disk.

A journal line is written after its bytes are on disk, so a part survives a kill and a crash of the machine. The first
line is the file's identity at the source: a part of other content is thrown away.
"""

import errno
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from graphpod_sources.listing import RemoteFile
from graphpod_sources.manifest import size_of
from graphpod_sources.names import shown, size
from graphpod_sources.problem import Problem, Reason
from graphpod_sources.transfer.spans import PIECE, Span, count, joined, missing

FOLDER = ".partial"
BLOCK = 4 << 20  # bytes hashed at once
LARGEST_HEAD = 1 << 16  # bytes
LARGEST_JOURNAL = 16 << 20  # bytes
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Part:
    """One file below `folder`. Its methods are safe from any thread; they raise `Problem` (DiskFull)."""

    def __init__(self, folder: Path, file: RemoteFile) -> None:
        self.file = file
        self.target = folder / file.path
        stem = hashlib.sha256(file.path.encode()).hexdigest()[:24]
        self.path, self._journal = (folder / FOLDER / f"{stem}{end}" for end in (".part", ".journal"))
        self._lock = threading.Lock()
        self._spans: list[Span] = []
        self._descriptor: int | None = None

    def open(self) -> int:
        """Take up what an earlier run left; bytes that are there."""
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._spans = self._read() if self.file.identity and self.file.ranges else []
            if not self._spans:
                self.discard()
                self._journal.write_text(self._head + "\n")
                self.path.touch()
        return count(self._spans)

    @property
    def _head(self) -> str:
        return json.dumps({"path": self.file.path, "size": self.file.size, "identity": self.file.identity})

    def is_of_this_file(self) -> bool:
        """Whether what lies there was begun for this content."""
        try:
            if size_of(self._journal) is None:
                return False  # also for a named pipe, which would not let it be opened
            with self._journal.open() as journal:
                return journal.readline(LARGEST_HEAD) == self._head + "\n"
        except (OSError, UnicodeDecodeError):
            return False

    def _read(self) -> list[Span]:
        """Spans of the journal, when it is of this file and the part is as long as they say."""
        try:
            if not self.is_of_this_file() or self._journal.stat().st_size > LARGEST_JOURNAL:
                return []
            _, *lines = self._journal.read_text().split("\n")
            there = self.path.stat().st_size
            # the last line may be cut by a kill
            spans = [(int(start), int(end)) for start, end in (line.split() for line in lines[:-1])]
        except (OSError, ValueError):
            return []
        most = there if self.file.size is None else min(there, self.file.size)
        return joined((start, end) for start, end in spans if 0 <= start < end <= most)

    def pieces(self, piece: int = PIECE) -> list[tuple[int, int | None]]:
        """What is missing, as requests; one of the whole file where it cannot be had in pieces."""
        if self.file.size is None or not self.file.ranges:
            return [(0, self.file.size)]
        return list(missing(self._spans, self.file.size, piece))

    def write(self, at: int, chunk: bytes | memoryview) -> None:
        """Put a chunk to its place."""
        view = memoryview(chunk)
        with writing(self.path):
            descriptor = self._opened()
            while view:
                wrote = os.pwrite(descriptor, view, at)
                view, at = view[wrote:], at + wrote

    def restart(self) -> None:
        """Forget the bytes of a file that can be had only from its start."""
        os.ftruncate(self._opened(), 0)

    def _opened(self) -> int:
        """Opened by the first write: a model may have more files than a process may open."""
        with self._lock:
            if self._descriptor is None:
                self._descriptor = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            return self._descriptor

    def keep(self, start: int, end: int) -> None:
        """Bytes `start` to before `end` are written: remember so, once they are on disk."""
        if start >= end:
            return
        with writing(self.path):
            os.fdatasync(self._opened())
            with self._lock, self._journal.open("a") as journal:
                self._spans = joined([*self._spans, (start, end)])
                journal.write(f"{start} {end}\n")

    def verify(self, work: Callable[[], None]) -> str | None:
        """Check size and checksum; the SHA-256 where the source states one. Raises `Problem` and discards the part."""
        got = self.path.stat().st_size
        if self.file.size is not None and got != self.file.size:
            self.discard()
            raise Problem(
                Reason.Truncated, f"{shown(self.file.path)}: {size(got)} came of {size(self.file.size)} that are listed"
            )
        for name, stated, digest in self._checks(got):
            with self.path.open("rb") as content:
                while block := content.read(BLOCK):
                    digest.update(block)
                    work()
            if digest.hexdigest() != stated:
                self.discard()
                raise Problem(
                    Reason.ChecksumMismatch,
                    f"{shown(self.file.path)}: its {name} is {digest.hexdigest()}, and {stated} is stated",
                )
        return self.file.sha256

    def _checks(self, got: int) -> Iterable[tuple[str, str, "hashlib._Hash"]]:
        if self.file.sha256:
            yield "SHA-256", self.file.sha256, hashlib.sha256()
        elif self.file.git_oid:
            blob = hashlib.sha1(b"blob %d\0" % got, usedforsecurity=False)
            yield "git object id", self.file.git_oid, blob

    def place(self) -> None:
        """Give the file its name, once its bytes are on disk. Its part and journal are gone afterwards."""
        with writing(self.path):
            os.fsync(self._opened())
        self.close()
        with writing(self.target):
            self.target.parent.mkdir(parents=True, exist_ok=True)
            self.path.replace(self.target)
        self._journal.unlink(missing_ok=True)

    def discard(self) -> None:
        """Throw away what is there."""
        self.close()
        with self._lock:
            self._spans = []
        self.path.unlink(missing_ok=True)
        self._journal.unlink(missing_ok=True)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Inside of it a full disk or quota is a `Problem` (DiskFull)."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise Problem(Reason.DiskFull, f"{path}: {error.strerror}") from error
