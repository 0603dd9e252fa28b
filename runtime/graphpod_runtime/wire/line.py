"""A line of frames: one end of a stream socket between two processes of one machine, which belongs to one thread.

Sending never waits: what the kernel does not take stays here, so a slow reader costs memory, not a deadlock. A frame is
its length in LENGTH_BYTES, then its bytes.
"""

import select
import socket
import time

LENGTH_BYTES = 4
MOST_BYTES = 1 << 30
"""Of a frame, far more than any has: what says that it is longer is no frame, and its bytes would be waited for."""
PIECE = 1 << 16
"""Bytes that are read at once."""


class Line:
    """Frames out and in, in order."""

    def __init__(self, own: socket.socket) -> None:
        own.setblocking(False)
        self._socket = own
        self._out, self._in = bytearray(), bytearray()
        self._waiting = select.poll()
        self._waiting.register(own, select.POLLIN)
        self.ended = False
        """The other end has gone: what is sent is lost. What it sent before can be taken."""
        self._read_out = False

    @property
    def pending(self) -> bool:
        """Whether something waits for `flush`."""
        return bool(self._out)

    def fileno(self) -> int:
        """The socket's."""
        return self._socket.fileno()

    def send(self, frame: bytes) -> None:
        """Gives the kernel what it takes, and keeps the rest for `flush`."""
        data = len(frame).to_bytes(LENGTH_BYTES, "little") + frame
        if self._out:
            self._out += data
            self.flush()
        elif not self.ended and (given := self._given(data)) < len(data):
            self._out += memoryview(data)[given:]

    def flush(self) -> None:
        """Goes on with what the kernel has not taken."""
        if self._out:
            del self._out[: self._given(self._out)]
        if self.ended:
            self._out.clear()

    def take(self, most: int) -> list[bytes]:
        """Frames that have come, without waiting; so many at most. Fewer than `most`: there are no others. ValueError
        for what is no frame.
        """
        frames: list[bytes] = []
        while len(frames) < most:
            end = LENGTH_BYTES + int.from_bytes(self._in[:LENGTH_BYTES], "little")
            if len(self._in) >= max(end, LENGTH_BYTES):
                frames.append(bytes(memoryview(self._in)[LENGTH_BYTES:end]))
                del self._in[:end]
            elif end > MOST_BYTES:
                raise ValueError(f"a frame of {end} bytes, more than {MOST_BYTES}: the other end sends no frames")
            elif not self._read():
                break
        return frames

    def wait(self, seconds: float) -> bool:
        """Whether something has come in `seconds`, or the other end has gone; what is kept is sent meanwhile. A wait is
        a millisecond shorter rather than longer.
        """
        if self._read_out:
            time.sleep(seconds)
            return False
        limit, left = time.monotonic() + seconds, seconds
        while True:
            self._waiting.modify(self._socket, select.POLLIN | (select.POLLOUT if self._out else 0))
            # In whole milliseconds, and none too many: a launch may be due then. One that is asked for is waited.
            happened = self._waiting.poll(int(left * 1000))
            left = max(0.0, limit - time.monotonic())
            self.flush()
            if not happened:
                return False
            if happened[0][1] & ~select.POLLOUT:
                return True

    def close(self, seconds: float = 0.0) -> None:
        """Returns when what is kept has left, after so long at most."""
        limit = time.monotonic() + seconds
        while self._out and (left := limit - time.monotonic()) > 0:
            self._waiting.modify(self._socket, select.POLLOUT)
            self._waiting.poll(left * 1000)
            self.flush()
        self._socket.close()

    def _given(self, data: bytes | bytearray) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except ConnectionError:
            self.ended = True
            return len(data)

    def _read(self) -> bool:
        """Whether more bytes have come."""
        if self._read_out:
            return False
        try:
            data = self._socket.recv(PIECE)
        except BlockingIOError:
            return False
        except ConnectionError:
            data = b""
        self._in += data
        if not data:
            self.ended = self._read_out = True
        return bool(data)
