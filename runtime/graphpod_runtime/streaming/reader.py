"""Blocks of a streamed checkpoint into buffers on the host, by many connections, ahead of whoever takes them.

Threads take pieces in the order in which their blocks are taken. A block gets its buffer with its first piece, once the
buffers that are out leave room: `staging` bytes together, or one that is larger alone. Each piece is tried
again from where it ended, until nothing has come for the stall deadline; the thread that takes blocks watches that
deadline, too.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Generic, TypeVar

from graphpod_policy.start.footprint import STREAM_STAGING_BYTES
from graphpod_runtime.base.progress import OnProgress, ignore_progress
from graphpod_runtime.streaming.blocks import Block
from graphpod_sources.listing import Source
from graphpod_sources.names import shown
from graphpod_sources.problem import Problem, Reason
from graphpod_sources.progress import Progress
from graphpod_sources.transfer.patience import Patience, Stopped

CONNECTIONS = 16
LOOK = 0.2  # s

Buffer = TypeVar("Buffer")


@dataclass(slots=True)
class Rates:
    """How a read went: bytes that came, seconds in all, and those in which blocks were waited for."""

    received: int = 0
    seconds: float = 0.0
    waited: float = 0.0

    def __str__(self) -> str:
        rate = self.received / max(self.seconds, 1e-9) / 1e9
        share = self.waited / max(self.seconds, 1e-9)
        limit = "the source" if share >= 0.5 else "the device and the host's copies"
        return (
            f"{self.received / 1e9:.2f} GB in {self.seconds:.1f} s, {rate:.2f} GB/s; {share:.0%} of the time waited "
            f"for the source: the limit was {limit}"
        )


class Reader(Generic[Buffer]):
    """One read of `blocks` from `source`. `allocate` makes a buffer of some bytes, and `view` shows them to write."""

    def __init__(
        self,
        source: Source,
        blocks: Sequence[Block],
        allocate: Callable[[int], Buffer],
        view: Callable[[Buffer], memoryview],
        stall_seconds: float,
        read: OnProgress = ignore_progress,
        connections: int = CONNECTIONS,
        staging: int = STREAM_STAGING_BYTES,
    ) -> None:
        self._source, self._blocks, self._allocate, self._view, self._read = source, blocks, allocate, view, read
        self._connections, self._staging = connections, staging
        self._progress, self._stop = Progress(), threading.Event()
        self._patience = Patience(stall_seconds, self._progress, self._stop)
        self._changed = threading.Condition()
        self._pieces = [(index, piece) for index, block in enumerate(blocks) for piece in block.pieces]
        self._next = 0
        self._buffers: dict[int, Buffer] = {}
        self._left = [len(block.pieces) for block in blocks]
        self._out = 0
        """Bytes of buffers that are in use."""
        self._failure: BaseException | None = None
        self._last: Problem | None = None
        self.rates = Rates()

    def __iter__(self) -> Iterator[tuple[Block, Buffer]]:
        """Each block with its buffer, which is valid until the next one. Raises `Problem`."""
        began = monotonic()
        for number in range(min(self._connections, len(self._pieces))):
            threading.Thread(target=self._work, name=f"stream-{number}", daemon=True).start()
        try:
            for index, block in enumerate(self._blocks):
                self._await(index)
                if not block.pieces:  # of tensors without elements
                    yield block, self._allocate(block.size)
                    continue
                yield block, self._buffers[index]
                with self._changed:
                    del self._buffers[index]
                    self._out -= block.size
                    self._progress.work()  # while blocks were not taken, none could come
                    self._changed.notify_all()
        finally:
            self._stop.set()
            self.rates.received, self.rates.seconds = self._progress.received, monotonic() - began
            with self._changed:
                self._changed.notify_all()

    def _await(self, index: int) -> None:
        began = monotonic()
        while True:
            with self._changed:
                if self._failure is None and self._left[index]:
                    self._changed.wait(LOOK)
                if self._failure is None and self._left[index] and self._progress.idle > self._patience.stall_seconds:
                    nothing = f"no byte came for {self._patience.stall_seconds:g} s"
                    self._failure = self._last or Problem(Reason.Stalled, nothing)
                if self._failure is not None:
                    raise self._failure
                arrived = not self._left[index]
            self._read()  # also while nothing comes: this read has a deadline of its own
            if arrived:
                self.rates.waited += monotonic() - began
                return

    def _work(self) -> None:
        try:
            while (taken := self._take()) is not None:
                index, (start, end), buffer = taken
                self._fetch(self._blocks[index], self._view(buffer), start, end)
                with self._changed:
                    self._left[index] -= 1
                    self._changed.notify_all()
        except Stopped:
            return
        except BaseException as error:  # noqa: BLE001 (whoever takes blocks raises it)
            with self._changed:
                self._failure = self._failure or error
                self._changed.notify_all()
            self._stop.set()

    def _take(self) -> tuple[int, tuple[int, int], Buffer] | None:
        """The next piece, once there is a buffer for it; None when there is none left, or the read has ended."""
        with self._changed:
            while not self._stop.is_set() and self._next < len(self._pieces):
                index, piece = self._pieces[self._next]
                if index not in self._buffers:
                    count = self._blocks[index].size
                    if self._out and self._out + count > self._staging:
                        self._changed.wait()
                        continue
                    self._out += count
                    self._buffers[index] = self._allocate(count)
                self._next += 1
                return index, piece, self._buffers[index]
            return None

    def _fetch(self, block: Block, view: memoryview, start: int, end: int) -> None:
        """One piece, tried again from where it ended."""
        at, failures, file = start, 0, block.file.remote
        while at < end:
            before = at
            try:
                for chunk in self._source.read(file, at, end):
                    if self._stop.is_set():
                        raise Stopped
                    count = len(chunk)
                    if at + count > end:
                        raise Problem(Reason.ServerError, f"{shown(file.path)}: sends more than was asked for")
                    view[at - block.start : at - block.start + count] = chunk
                    at += count
                    self._progress.receive(count)
                    self._last = None
                if at < end:
                    raise Problem(Reason.Truncated, f"{shown(file.path)}: ended at byte {at} of {end}")
            except Problem as problem:
                self._last = problem
                failures = 0 if at > before else failures + 1
                self._patience.wait(problem, failures)
