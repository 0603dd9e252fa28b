"""The file tier: pages of the host pool are written to files behind the engine's back, and read into slots of the pool.

It knows slots and keys. The radix tree gets what was read as host nodes (`cache/file_reads.py`), so all behind that is
the host tier's work. One thread looks at the folder once and writes, a few others read. They have the slots that they
read into to themselves. The slots that they write from they have not: one may get another page at any time. So a slot
has a number, which grows before its bytes change, and bytes that were copied while it grew are dropped.

No error of a file fails a request. What cannot be written is lost, what cannot be read is computed, and both are
counted by reason.
"""

import errno
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol

import numpy

from graphpod_runtime.cache.files.page_file import BadPage
from graphpod_runtime.cache.files.page_folder import PageFolder
from graphpod_runtime.cache.files.page_keys import page_keys
from graphpod_runtime.cache.radix_node import Namespace

logger = logging.getLogger("graphpod.engine")

READERS = 4
MOST_TOKENS = 1 << 24
"""Of texts whose pages wait to be written: 128 MiB of memory."""
FORGOTTEN = 0.9
"""What is left of the measured cost of a page after each read that it prevents: a disk that was slow is tried again."""
NO_SLOT = (-1, 0)
"""In place of a slot and its number: there is nothing to write."""
APART = 1e-5
"""Seconds between the times of two pages of a prefix, so that the last one goes first."""
CLOSE_SECONDS = 2.0
"""For the file that each thread is at."""
LOOK_SECONDS = 60.0
"""After which a thread without pages to write looks again at the folder."""
LOOK_SHARE = 0.02
"""Of its time, at most."""
FULL = (errno.ENOSPC, errno.EDQUOT)


class FileFailure(StrEnum):
    """Why pages did not come to files, or from them."""

    Folder = "Folder"
    """The folder cannot be used."""
    Full = "Full"
    """The disk has no room."""
    Write = "Write"
    """A file could not be written."""
    Overtaken = "Overtaken"
    """The host pool needed the slot before its page was in a file."""
    Missing = "Missing"
    """A file is not there any more."""
    Corrupt = "Corrupt"
    """A file is cut short or altered, or is no plain file."""
    Read = "Read"
    """A file could not be read."""
    Late = "Late"
    """A read took longer than computing the tokens: a request waits no longer."""


class Slots(Protocol):
    """What it needs of the host pool: HostPool and PinnedPool."""

    page_bytes: int

    def content(self, slot: int) -> memoryview:
        """The bytes of a slot, in place: [page_bytes]."""

    def drain(self) -> None:
        """Returns when no copy is on its way, those that failed half done included."""


class Left(NamedTuple):
    """Pages that came to the host: `slots` by their numbers, from page `first` of `tokens` on."""

    namespace: Namespace
    tokens: list[int]
    first: int
    slots: list[tuple[int, int]]
    """NO_SLOT: the page has a file."""
    used: float | None = None
    """When the first of them was, by the clock of files; each one behind it APART earlier. None: now."""


class Reading:
    """Pages on their way from files to `slots`."""

    def __init__(self, keys: Sequence[bytes], slots: Sequence[int], began: float) -> None:
        self.keys, self.slots, self.began = keys, slots, began
        self.came = [False] * len(slots)
        """Of each page. Only those in front of the first that did not come continue a prefix."""
        self.left = len(slots)

    @property
    def landed(self) -> bool:
        """Whether no thread writes to its slots."""
        return not self.left

    @property
    def whole(self) -> int:
        """Pages that came, up to the first that did not."""
        return self.came.index(False) if False in self.came else len(self.came)


class FileTier:
    """Of one engine. Its methods are for the engine's thread."""

    def __init__(
        self,
        folder: PageFolder,
        identity: bytes,
        page_size: int,
        pool: Slots,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder, self.pool, self.clock = folder, pool, clock
        self.failures = dict.fromkeys(FileFailure, 0)
        self.written = self.read = 0
        """Pages."""
        self.write_seconds = self.read_seconds = 0.0
        """Of one file after the other: threads that read at the same time count each."""
        self.hit_tokens = 0
        """Prompt tokens of requests, before their first pass, that came from files."""
        self.wait_seconds = 0.0
        """Of requests in the queue."""
        self.page_seconds = 0.0
        """That the latest reads took for each page."""
        self._identity, self._page_size = identity, page_size
        self._numbers: Counter[int] = Counter()
        self.waiting_tokens = 0
        """Of texts whose pages wait to be written, or are being written."""
        self.looked = threading.Event()
        """Set when the folder was looked at."""
        self._count = threading.Lock()
        self._to_write: SimpleQueue[Left | None] = SimpleQueue()
        self._to_read: SimpleQueue[tuple[Reading, int] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._running = 0
        """Threads."""
        self._looks = True
        """Whether the folder is looked at again."""
        self._closing = False

    def begin(self) -> None:
        """Starts its threads."""
        tasks = [("write", self._write), *((f"read-{number}", self._read) for number in range(READERS))]
        self._running = len(tasks)
        for name, task in tasks:
            thread = threading.Thread(target=self._run, args=(task,), name=f"host-cache-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def look_no_more(self) -> None:
        """The engine ends soon, and its time is for pages to write. A look that has begun ends, even where it takes the
        files of a process that is gone: the next process takes the rest."""
        self._looks = False

    def close(self) -> None:
        """Ends its threads, each after the file that it is at, and gives the folder back; a second call does nothing.
        A disk that does not answer is waited for no longer than CLOSE_SECONDS."""
        if self._closing:
            return
        self._closing = True
        self.look_no_more()
        self._to_write.put(None)
        for _ in range(READERS):
            self._to_read.put(None)
        if not self._threads:
            self.folder.close()
        until = time.monotonic() + CLOSE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _run(self, task: Callable[[], None]) -> None:
        """A thread. The last one that ends closes the folder: until then one of them may use it."""
        try:
            task()
        finally:
            with self._count:
                self._running -= 1
                last = not self._running
            if last:
                self.folder.close()

    def reused(self, slots: Sequence[int]) -> None:
        """They get other bytes from now on."""
        self._numbers.update(slots)

    def number(self, slot: int) -> int:
        """Grows before the bytes of `slot` change."""
        return self._numbers[slot]

    def save(self, left: Left) -> None:
        """The bytes of these pages are in their slots: they go to files."""
        if self.waiting_tokens + len(left.tokens) > MOST_TOKENS:
            self.failed(FileFailure.Overtaken, "the disk does not keep up", len(left.slots))
            return
        with self._count:
            self.waiting_tokens += len(left.tokens)
        self._to_write.put(left)

    def without(self, namespace: Namespace, tokens: list[int], first: int) -> list[bool]:
        """Of each whole page of `tokens` from page `first` on: whether no file has it."""
        keys = page_keys(self._identity, namespace, tokens, self._page_size, first)
        return [not self.folder.has(key) for key in keys]

    def known(self, namespace: Namespace, tokens: list[int], first: int, most: int) -> list[bytes]:
        """Keys of up to `most` whole pages of `tokens` from page `first` on that are in files."""
        found = list[bytes]()
        if not len(self.folder) or most <= 0:
            return found
        for key in page_keys(self._identity, namespace, tokens, self._page_size, first):
            if len(found) == most or not self.folder.has(key):
                break
            found.append(key)
        return found

    def fetch(self, reading: Reading) -> None:
        """Begins to read. No copy is on its way to the slots."""
        for place in range(len(reading.slots)):
            self._to_read.put((reading, place))

    def took(self, reading: Reading) -> None:
        """It has landed: what a page of it cost."""
        latest = (self.clock() - reading.began) / len(reading.slots)
        self.page_seconds = latest if not self.page_seconds else (self.page_seconds + latest) / 2

    def was_too_slow(self) -> None:
        """A read was not begun because of what it would cost."""
        self.page_seconds *= FORGOTTEN

    def failed(self, reason: FileFailure, error: object = "", pages: int = 1) -> None:
        """Counts it. The first of a kind is logged."""
        with self._count:
            first, self.failures[reason] = not self.failures[reason], self.failures[reason] + pages
        if first:
            logger.warning("host KV cache, files: %s %s (more of these are counted, not logged)", reason.value, error)

    def _write(self) -> None:
        self.folder.look(lambda: not self._looks)
        self.looked.set()
        logger.info("host KV cache, files: %d pages found", len(self.folder))
        buffer = memoryview(bytearray(self.pool.page_bytes))
        looks = time.monotonic() + LOOK_SECONDS
        while not self._closing:
            try:
                left = self._to_write.get(timeout=max(0.0, looks - time.monotonic()))
            except Empty:
                looks = self._look_again()
                continue
            if left is None:
                return
            keys = page_keys(self._identity, left.namespace, left.tokens, self._page_size, left.first)
            # The last one first: it is of no use without those in front of it, so it is to go before them.
            for place, (key, slot) in reversed(list(enumerate(zip(keys, left.slots, strict=False)))):
                if not self._closing:
                    used = None if left.used is None else left.used - APART * place
                    self._write_page(key, *slot, buffer, used)
            with self._count:
                self.waiting_tokens -= len(left.tokens)

    def _look_again(self) -> float:
        """Finds what others have written; when to look next."""
        began = time.monotonic()
        if taken := self.folder.look_again(lambda: not self._looks):
            logger.info("host KV cache, files: took %d pages of processes that are gone", taken)
        took = time.monotonic() - began
        return began + max(LOOK_SECONDS, took / LOOK_SHARE)

    def _write_page(self, key: bytes, slot: int, number: int, buffer: memoryview, used: float | None) -> None:
        if self.folder.has(key):
            self.folder.touch(key, used)
            return
        if slot < 0:
            return
        # An assignment to `buffer` holds the interpreter's lock for milliseconds, which the engine's thread needs.
        numpy.copyto(numpy.frombuffer(buffer, numpy.uint8), numpy.frombuffer(self.pool.content(slot), numpy.uint8))
        if self._numbers[slot] != number:
            self.failed(FileFailure.Overtaken)
            return
        began = time.perf_counter()
        try:
            if not self.folder.write(key, buffer):
                self.failed(FileFailure.Full, "a page is larger than the size of all files")
                return
        except OSError as error:
            full = error.errno in FULL
            self.failed(FileFailure.Full if full else FileFailure.Write, error)
            if full:
                self.folder.shrink()
            return
        if used is not None:
            self.folder.touch(key, used)
        self.written += 1
        self.write_seconds += time.perf_counter() - began

    def _read(self) -> None:
        while (task := self._to_read.get()) is not None and not self._closing:
            reading, place = task
            try:
                reading.came[place] = self._read_page(reading.keys[place], reading.slots[place])
            finally:
                with self._count:
                    reading.left -= 1
                    last = not reading.left
            if last:
                for key in reversed(reading.keys):
                    self.folder.touch(key)

    def _read_page(self, key: bytes, slot: int) -> bool:
        """Whether the page is in the slot."""
        began = time.perf_counter()
        try:
            self.folder.read(key, self.pool.content(slot))
        except BadPage as error:
            self.failed(FileFailure.Corrupt, error)
            return False
        except FileNotFoundError as error:
            self.failed(FileFailure.Missing, error)
            return False
        except OSError as error:
            # A symbolic link where a file should be is nothing that a disk has lost.
            self.failed(FileFailure.Corrupt if error.errno == errno.ELOOP else FileFailure.Read, error)
            return False
        with self._count:
            self.read += 1
            self.read_seconds += time.perf_counter() - began
        return True
