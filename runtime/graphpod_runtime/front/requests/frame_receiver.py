"""One socket of the wire on an event loop: no task and no future for a frame, only a call."""

import asyncio
from collections.abc import Callable

from graphpod_runtime.wire.socket import FrontEnd

AT_ONCE = 16
"""Frames read before the event loop has its turn: what they bring then leaves in one write a connection."""


class FrameReceiver:
    """Calls `read` with each frame that comes, on the event loop that this was made on, until `close`. Sends what the
    kernel did not take at once.
    """

    def __init__(self, end: FrontEnd, read: Callable[[bytes], None]) -> None:
        self._end, self._read = end, read
        self._loop = asyncio.get_running_loop()
        self._going_on: asyncio.Handle | None = None
        self.failed: asyncio.Future[None] = self._loop.create_future()
        """Has the exception of `read`, or of a socket that gives no frames; nothing is read after it."""
        self._watched = end.fileno()
        self._loop.add_reader(self._watched, self._drain)

    @property
    def error(self) -> BaseException | None:
        """That of `failed`, if there is one."""
        return self.failed.exception() if self.failed.done() and not self.failed.cancelled() else None

    def sent(self) -> None:
        """Something was sent: the engine may have been found by that, and part of the frame may be left."""
        if self.failed.done() or (line := self._end.line) is None:
            return
        if line.fileno() != self._watched:
            self._loop.remove_reader(self._watched)
            self._watched = line.fileno()
            self._loop.add_reader(self._watched, self._drain)
        if line.pending:
            self._loop.add_writer(self._watched, self._flush)

    def close(self) -> None:
        """Reads and writes no more."""
        self._leave()
        if not self.failed.done():
            self.failed.cancel()

    def read_all(self) -> None:
        """Reads now whatever has come. For an end whose other end has gone: others wait meanwhile."""
        while not self.failed.done() and self._read_some():
            pass

    def _leave(self) -> None:
        self._loop.remove_reader(self._watched)
        self._loop.remove_writer(self._watched)
        if self._going_on is not None:
            self._going_on.cancel()

    def _flush(self) -> None:
        line = self._end.line
        assert line is not None, "only a line is watched for room"
        line.flush()
        if not line.pending:
            self._loop.remove_writer(self._watched)

    def _drain(self) -> None:
        if self._going_on is not None:  # the loop may call this before its turn: one of them goes on
            self._going_on.cancel()
            self._going_on = None
        self.sent()  # what became readable may be the engine's coming
        if not self.failed.done() and self._read_some():
            # Frames that have been read from the socket make it readable no more.
            self._going_on = self._loop.call_soon(self._drain)

    def _read_some(self) -> bool:
        """Reads AT_ONCE frames, or all that have come; whether more may be there."""
        if (line := self._end.line) is None:
            return False
        try:
            frames = line.take(AT_ONCE)
            for frame in frames:
                self._read(frame)
        except Exception as error:  # noqa: BLE001  whoever waits for `failed` raises it
            self._leave()
            if not self.failed.done():
                self.failed.set_exception(error)
            return False
        if len(frames) == AT_ONCE:
            return True
        if line.ended:
            self._loop.remove_reader(self._watched)
        return False
