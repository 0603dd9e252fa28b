"""A bounded folder of pages, the least recently used first to go.

Processes may share a folder. Each has a part of it to itself, writes and deletes there only, and reads from all parts:
what a pod leaves behind serves the one that follows it, which may have another part. It looks again now and then at
parts whose files have changed. The time of a file says when it was used.

A part whose process is gone stays for the next process that starts. When none has taken it for ABANDONED_SECONDS, one
that runs takes its files into its own part, which keeps its size. So what is on the disk is bounded by the processes
that run.

The index is in memory, and rebuilt from names and sizes by one look at the folder. Until then nothing is found.
"""

import os
import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import numpy

from graphpod_runtime.cache.files import page_file
from graphpod_runtime.cache.files.part import MOST_FILES, Part, claimed

PARTS = 64
"""Processes that can share a folder."""
SETTLED_NANOSECONDS = 2_000_000_000
"""More than the times of files differ by at least."""
ABANDONED_SECONDS = 3600.0
"""By the clock of a process that looks: a pod that is replaced, on another node too, has started by then."""


class _Free(NamedTuple):
    """A part without a process: the word of the last one, and since when that is known."""

    word: bytes
    since: float


class PageFolder:
    """The part of one process. `has` is for any thread at any time; one thread looks and writes, others read."""

    def __init__(self, path: Path, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`size`: bytes of the part's files, at most. OSError where the folder cannot be used. It is made if its parent
        is there."""
        self.size = size
        self.used = self.evicted = 0
        """Bytes of the part's files, and files that went to make room."""
        self._clock = clock
        with suppress(FileExistsError):
            path.mkdir(0o700)
        self._folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._mine = claimed(self._folder, PARTS)
        except OSError:
            os.close(self._folder)
            raise
        self.number = self._mine.number
        self._parts = {self.number: self._mine}
        """Open ones, by number."""
        self._own: OrderedDict[bytes, int] = OrderedDict()
        """Bytes of the files of this part, by key, the least recently used first."""
        self._others: dict[int, set[bytes]] = {}
        """Pages that other parts have. Replaced, never changed, but for pages that are forgotten."""
        self._seen: dict[int, int] = {}
        """`changed` of those parts when they were looked at."""
        self._free: dict[int, _Free] = {}
        self._change = threading.Lock()

    def look(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Finds what is there, before anything is written. Files that have no room go, and so does what was not
        finished. `stop` as in `look_again`: the own part is looked at in any case."""
        with suppress(OSError):
            self._look_at_own()
        self.look_again(stop)

    def look_again(self, stop: Callable[[], bool] = lambda: False) -> int:
        """Finds what other parts have by now, and takes the files of those that are abandoned, of which it gives the
        number. `stop` ends that between two files: what was taken by then stays, and goes before all others."""
        taken = 0
        for number in range(PARTS):
            if number != self.number and not stop():
                with suppress(OSError):
                    part = self._parts.get(number) or Part(self._folder, number)
                    self._parts[number] = part
                    with suppress(OSError):  # another user's may be read and not be locked
                        taken += self._adopt(part, stop) if self._abandoned(part) else 0
                    self._look_at(part, stop)
        if taken and not stop():
            with suppress(OSError):  # what was taken is known, and goes first then
                self._look_at_own()
        return taken

    def has(self, key: bytes) -> bool:
        """Whether a file has it, as far as known."""
        return key in self._own or any(key in keys for keys in self._others.values())

    def __len__(self) -> int:
        return len(self._own) + sum(map(len, self._others.values()))

    def touch(self, key: bytes, used: float | None = None) -> None:
        """It was used last, which the file says of that time; None: now."""
        with self._change:
            if key in self._own:
                self._own.move_to_end(key)
        with suppress(OSError):
            times = None if used is None else (used, used)
            os.utime(key.hex(), times, dir_fd=self._part_of(key).descriptor, follow_symlinks=False)

    def write(self, key: bytes, content: memoryview) -> bool:
        """Whether the page is in a file now: not one that is larger than all there may be. OSError, and nothing
        written."""
        count = page_file.file_bytes(len(content))
        if count > self.size:
            return False
        self._make_room(count)
        page_file.write(self._mine.descriptor, key.hex(), key, content)
        with self._change:
            self._own[key] = count
            self.used += count
        return True

    def read(self, key: bytes, into: memoryview) -> None:
        """Fills `into`; BadPage or OSError, and the file is not found again."""
        part = self._part_of(key)
        try:
            page_file.read(part.descriptor, key.hex(), key, into)
        except (OSError, page_file.BadPage):
            self._forget(key, part)
            raise

    def shrink(self) -> None:
        """The disk is full: an eighth of the part's files go, at least one."""
        self._make_room(self.size - self.used + max(1, self.used // 8))

    def close(self) -> None:
        """Others may have the part."""
        for part in self._parts.values():
            part.close()
        os.close(self._folder)

    def _look_at_own(self) -> None:
        """Takes the index from the disk. A clock that was ahead puts no file behind those that are used from now on."""
        times, keys, counts = array("d"), list[bytes](), array("q")
        for used, key, count in self._mine.files():
            times.append(used)
            keys.append(key)
            counts.append(count)
        # A sort of a million tuples, or a sum over as many entries, would hold the interpreter's lock for long.
        order = numpy.argsort(numpy.minimum(numpy.array(times), time.time()), kind="stable")
        own = OrderedDict((keys[place], counts[place]) for place in order.tolist())
        with self._change:
            self._own, self.used = own, int(numpy.array(counts).sum())
        self._make_room(0)

    def _look_at(self, part: Part, stop: Callable[[], bool]) -> None:
        """Where files came or went since."""
        if (changed := part.changed) != self._seen.get(part.number):
            settled = time.time_ns() - changed > SETTLED_NANOSECONDS
            keys = set(takewhile(lambda _: not stop(), part.keys()))
            if stop():
                return
            self._others = self._others | {part.number: keys}
            self._seen[part.number] = changed if settled else -1

    def _abandoned(self, part: Part) -> bool:
        """Whether no process has had it for long; it is this one's then."""
        if (word := part.claim()) is None:
            self._free.pop(part.number, None)
            return False
        free = self._free.get(part.number)
        if free is None or free.word != word:
            free = self._free[part.number] = _Free(word, self._clock())
        if self._clock() - free.since >= ABANDONED_SECONDS:
            return True
        part.release()
        return False

    def _adopt(self, part: Part, stop: Callable[[], bool]) -> int:
        """The files of `part` are in the own one afterwards, their number. Until their times are looked at they count
        as used before all others: their process is gone for long."""
        taken, known = 0, self._others.get(part.number, set())
        try:
            for _, key, count in part.files():
                if stop():
                    break
                if key in self._own:
                    part.delete(key)
                elif part.move(key, self._mine):
                    taken += 1
                    with self._change:
                        self._own[key] = count
                        self._own.move_to_end(key, last=False)
                        self.used += count
                else:
                    continue
                known.discard(key)
        finally:
            part.release()
        return taken

    def _make_room(self, count: int) -> None:
        """A file of so many bytes has room, if it has any. Files of others stay where they are."""
        most = MOST_FILES - (count > 0)
        gone = list[bytes]()
        with self._change:
            while self._own and (self.used + count > self.size or len(self._own) > most):
                key, size = self._own.popitem(last=False)
                self.used -= size
                gone.append(key)
        self.evicted += len(gone)
        for key in gone:
            self._mine.delete(key)

    def _part_of(self, key: bytes) -> Part:
        if key in self._own:
            return self._mine
        return self._parts[next((number for number, keys in self._others.items() if key in keys), self.number)]

    def _forget(self, key: bytes, part: Part) -> None:
        if part is not self._mine:
            self._others[part.number].discard(key)
            return
        with self._change:
            self.used -= self._own.pop(key, 0)
        self._mine.delete(key)
