"""The sockets between ranks of one host: files in a folder of their own.

Each rank but the first has a line for its orders. All send their notices on one line; each sender has a socket of its
own, because a ZMQ socket belongs to one thread.
"""

from pathlib import Path

import zmq

from graphpod_runtime.engine.ranks.messages import Notice, Order, decode_notices, decode_order, encode
from graphpod_runtime.wire.socket import SEND_LIMIT_MS, address, unbounded

NOTICES = "notices"


def _line(rank: int) -> str:
    return f"rank-{rank}"


class FirstEnds:
    """The first rank's ends. `send` belongs to one thread, `notices` to another."""

    def __init__(self, folder: Path, count: int) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._lines = [self._bound(zmq.PAIR, folder, _line(rank)) for rank in range(1, count)]
        self._notices = self._bound(zmq.PULL, folder, NOTICES)

    def _bound(self, kind: int, folder: Path, name: str) -> "zmq.Socket[bytes]":
        socket = self._context.socket(kind)
        unbounded(socket)
        socket.bind(address(folder, name))
        return socket

    def send(self, order: Order) -> None:
        """To all other ranks."""
        frame = encode(order)
        for line in self._lines:
            line.send(frame, zmq.NOBLOCK)

    def notices(self, seconds: float) -> list[Notice]:
        """All that has come; waits up to `seconds` for the first."""
        frames: list[bytes] = []
        timeout = int(seconds * 1000)
        while self._notices.poll(timeout):
            frames.append(self._notices.recv())
            timeout = 0
        return decode_notices(frames)

    def close(self) -> None:
        self._context.destroy(linger=SEND_LIMIT_MS)


class Orders:
    """The orders of a rank."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.PAIR)
        unbounded(self._socket)
        self._socket.connect(address(folder, _line(rank)))

    def next(self) -> Order:
        """Waits for it."""
        return decode_order(self._socket.recv())


class Voice:
    """What a thread of a rank reports to the first one."""

    def __init__(self, folder: Path) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.PUSH)
        unbounded(self._socket)
        self._socket.setsockopt(zmq.LINGER, SEND_LIMIT_MS)
        self._socket.connect(address(folder, NOTICES))

    def say(self, words: Notice) -> None:
        self._socket.send(encode(words))

    def close(self) -> None:
        """Returns when all has left."""
        self._socket.close()
        self._context.term()
