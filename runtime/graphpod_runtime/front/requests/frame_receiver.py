"""The receiving end of one socket of the wire: no task and no future for a frame, only a call.

ZMQ's file descriptor is edge-triggered: it announces that something has changed, once. So it is drained when it does,
and again after a send on the same socket, which may have swallowed the announcement.
"""

import asyncio
from collections.abc import Callable

import zmq

AT_ONCE = 16
"""Frames read before the event loop has its turn: what they bring then leaves in one write a connection."""


class FrameReceiver:
    """Calls `read` with each frame that comes, on the event loop that this was made on, until `close`."""

    def __init__(self, socket: "zmq.Socket[bytes]", read: Callable[[bytes], None]) -> None:
        self._socket, self._read = socket, read
        self._loop = asyncio.get_running_loop()
        self._looking: asyncio.Handle | None = None
        self.failed: asyncio.Future[None] = self._loop.create_future()
        """Has the exception of `read`; nothing is read after it."""
        self._descriptor = socket.fileno()
        self._loop.add_reader(self._descriptor, self._drain)
        self.look()  # what came before was announced to no reader

    def look(self) -> None:
        """Frames may have come: reads them soon, but none after `failed` or `close`."""
        if self._looking is None and not self.failed.done():
            self._looking = self._loop.call_soon(self._drain)

    def close(self) -> None:
        """Reads no more."""
        self._loop.remove_reader(self._descriptor)
        if self._looking is not None:
            self._looking.cancel()
        if not self.failed.done():
            self.failed.cancel()

    def read_all(self) -> None:
        """Reads now whatever has come. For an end whose other end has gone: others wait meanwhile."""
        while not self.failed.done() and self._read_some():
            pass

    def _drain(self) -> None:
        self._looking = None
        if self._read_some():
            self.look()

    def _read_some(self) -> bool:
        """Reads AT_ONCE frames, or all that have come; whether more may be there."""
        try:
            for _ in range(AT_ONCE):
                self._read(self._socket.recv(zmq.NOBLOCK))
        except zmq.Again:
            return False
        except Exception as error:  # noqa: BLE001  whoever waits for `failed` raises it
            self._loop.remove_reader(self._descriptor)
            if not self.failed.done():
                self.failed.set_exception(error)
            return False
        return True
