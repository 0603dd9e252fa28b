"""The sockets between ranks: files of one machine, TCP between machines.

Each rank but the first has a line for its orders. All send their notices on one line; each sender has a socket of its
own, because a ZMQ socket belongs to one thread. Where the machines share a key, these sockets speak CURVE: both ends
prove that they have it, and whoever listens on the way reads and changes nothing.
"""

import zmq
from zmq.utils import z85

from graphpod_runtime.base.group_key import derived
from graphpod_runtime.engine.ranks.meeting import Meeting
from graphpod_runtime.engine.ranks.messages import Notice, Order, decode_notices, decode_order, encode

SEND_LIMIT_MS = 2000
"""A rank that ends waits so long for its last frame to leave."""
MOST_NOTICES, NOTICE_BYTES = 1024, 1 << 20
"""That wait at the first rank's ends, and of one: strangers may reach these where ranks are on several machines."""


class FirstEnds:
    """The first rank's ends. `send` belongs to one thread, `notices` to another."""

    def __init__(self, meeting: Meeting, count: int) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        others = range(1, count)
        self._lines = [self._bound(zmq.PAIR, meeting, {meeting.orders_of(rank)}) for rank in others]
        # one that has no rank here is bound all the same: the folder's file says that this end is there
        self._notices = self._bound(zmq.PULL, meeting, {meeting.notices_of(rank) for rank in range(count)})

    def _bound(self, kind: int, meeting: Meeting, urls: set[str]) -> "zmq.Socket[bytes]":
        socket = _socket(self._context, kind, meeting, first=True)
        socket.setsockopt(zmq.RCVHWM, MOST_NOTICES)
        socket.setsockopt(zmq.MAXMSGSIZE, NOTICE_BYTES)
        for url in urls:
            socket.bind(meeting.bound(url))
        return socket

    def send(self, order: Order) -> None:
        """To all other ranks."""
        frame = encode(order)
        for line in self._lines:
            line.send(frame, zmq.NOBLOCK)

    def notices(self, seconds: float) -> list[Notice]:
        """What has come, MOST_NOTICES at a time, lest one that sends without an end is all that is heard; waits up to
        `seconds` for the first.
        """
        frames: list[bytes] = []
        timeout = int(seconds * 1000)
        while len(frames) < MOST_NOTICES and self._notices.poll(timeout):
            frames.append(self._notices.recv())
            timeout = 0
        return decode_notices(frames)

    def close(self) -> None:
        self._context.destroy(linger=SEND_LIMIT_MS)


class Orders:
    """The orders of a rank."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = _socket(self._context, zmq.PAIR, meeting)
        self._socket.connect(meeting.orders_of(rank))

    def next(self) -> Order:
        """Waits for it."""
        return decode_order(self._socket.recv())


class Voice:
    """What a thread of a rank reports to the first one."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = _socket(self._context, zmq.PUSH, meeting)
        self._socket.setsockopt(zmq.LINGER, SEND_LIMIT_MS)
        self._socket.connect(meeting.notices_of(rank))

    def say(self, words: Notice) -> None:
        self._socket.send(encode(words))

    def close(self) -> None:
        """Returns when all has left."""
        self._socket.close()
        self._context.term()


def _socket(
    context: "zmq.Context[zmq.Socket[bytes]]", kind: int, meeting: Meeting, *, first: bool = False
) -> "zmq.Socket[bytes]":
    socket = context.socket(kind)
    # A slow reader costs memory, not a deadlock.
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.IPV6, 1)
    if meeting.leader is not None and meeting.leader.key:
        _keyed(socket, meeting.leader.key, first)
    return socket


def _keyed(socket: "zmq.Socket[bytes]", key: str, first: bool) -> None:
    """The first rank's pair of keys follows from the shared one. Its public half never crosses the network, so a client
    that has it has the shared key, and an end that answers to it has, too.
    """
    secret = z85.encode(derived(key, "curve"))
    public = zmq.curve_public(secret)
    if first:
        socket.setsockopt(zmq.CURVE_SERVER, 1)
    else:
        socket.setsockopt(zmq.CURVE_SERVERKEY, public)
        public, secret = zmq.curve_keypair()
    socket.setsockopt(zmq.CURVE_PUBLICKEY, public)
    socket.setsockopt(zmq.CURVE_SECRETKEY, secret)
