"""The sockets between ranks: files of one machine, TCP between machines.

Each rank but the first has a line for its orders. On the first rank's machine it is a Unix socket, which the rank reads
in the thread that obeys: a library with threads of its own wakes three threads for an order, and each of them may find
its processor asleep. On other machines it is ZMQ's. All send their notices on one line; each sender has a socket of its
own, because a ZMQ socket belongs to one thread. Where the machines share a key, ZMQ's sockets speak CURVE: both ends
prove that they have it, and whoever listens on the way reads and changes nothing.
"""

import select
import socket
import threading
import time

import zmq
from zmq.utils import z85

from graphpod_runtime.base.group_key import derived
from graphpod_runtime.engine.ranks.meeting import Meeting
from graphpod_runtime.engine.ranks.messages import Leave, Notice, Order, Rouse, decode_notices, decode_order, encode
from graphpod_runtime.wire.line import Line
from graphpod_runtime.wire.wakefulness import REHEARSAL_SECONDS

SEND_LIMIT_MS = 2000
"""A rank that ends waits so long for its last frame to leave."""
MOST_NOTICES, NOTICE_BYTES = 1024, 1 << 20
"""That wait at the first rank's ends, and of one: strangers may reach these where ranks are on several machines."""
FILES = "ipc://"
"""What URLs begin with that lead to a file."""
SLEEP_SECONDS = 60.0
"""A rank without orders looks this often for more."""
ROUSE = encode(Rouse())
LATE_MS = 1000
"""A thread that gives orders later looks this often whether its line is closed: a socket that another thread closes
ends no wait for it."""


class OrdersOut:
    """The first rank's end. Sending never waits: what the kernel does not take a thread gives it later, because this
    rank may wait for the other one meanwhile, which reads its orders in order."""

    def __init__(self, path: str) -> None:
        """Listens there (a socket's path holds 107 bytes)."""
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(path)
        self._listening.listen(1)
        self._listening.setblocking(False)
        self._line: Line | None = None
        self._lock = threading.Lock()
        self._late = False
        """Whether such a thread runs."""
        self._closed = False

    def send(self, frame: bytes) -> None:
        """BlockingIOError where the rank has not come yet; lost where it has gone."""
        with self._lock:
            if self._line is None:
                self._line = Line(self._listening.accept()[0])
            self._line.send(frame)
            if self._line.pending and not self._late:
                self._late = True
                threading.Thread(target=self._give, args=(self._line,), name="late-orders", daemon=True).start()

    def _give(self, line: Line) -> None:
        takes = select.poll()
        takes.register(line, select.POLLOUT)
        while True:
            takes.poll(LATE_MS)
            with self._lock:
                if not self._closed:
                    line.flush()
                if self._closed or not line.pending:
                    self._late = False
                    return

    def close(self) -> None:
        """What the rank has not read is lost."""
        with self._lock:
            self._closed = True
            if self._line is not None:
                self._line.close()
            self._listening.close()


class OrdersIn:
    """The end of the rank. It looks for orders for `awake` seconds after the latest one before it sleeps."""

    def __init__(self, path: str, awake: float = 0.0) -> None:
        own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        own.connect(path)
        self._line, self._awake = Line(own), awake
        self._until: float | None = None
        """When it sleeps; None: it has given an order, which may take any time."""

    def next(self) -> bytes | None:
        """Waits for it; None: the first rank has gone. While it looks for orders it gives ROUSE now and then."""
        began = time.monotonic()
        if self._until is None:
            self._until = began + self._awake
        while not (frames := self._line.take(1)):
            if self._line.ended:
                return None
            if (now := time.monotonic()) >= self._until:
                self._line.wait(SLEEP_SECONDS)
            elif now - began > REHEARSAL_SECONDS:
                return ROUSE
        self._until = None
        return frames[0]

    def close(self) -> None:
        self._line.close()


class FirstEnds:
    """The first rank's ends. `send` belongs to one thread, `notices` to another."""

    def __init__(self, meeting: Meeting, count: int) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        others = range(1, count)
        self._lines = [self._line(meeting, meeting.orders_of(rank)) for rank in others]
        # one that has no rank here is bound all the same: the folder's file says that this end is there
        self._notices = self._bound(zmq.PULL, meeting, {meeting.notices_of(rank) for rank in range(count)})

    def _line(self, meeting: Meeting, url: str) -> "OrdersOut | zmq.Socket[bytes]":
        return OrdersOut(url.removeprefix(FILES)) if url.startswith(FILES) else self._bound(zmq.PAIR, meeting, {url})

    def _bound(self, kind: int, meeting: Meeting, urls: set[str]) -> "zmq.Socket[bytes]":
        socket = _socket(self._context, kind, meeting, first=True)
        socket.setsockopt(zmq.RCVHWM, MOST_NOTICES)
        socket.setsockopt(zmq.MAXMSGSIZE, NOTICE_BYTES)
        for url in urls:
            socket.bind(meeting.bound(url))
        return socket

    def send(self, order: Order) -> None:
        """To all other ranks that have come; after that, BlockingIOError or zmq.Again where one has not."""
        frame, missing = encode(order), None
        for line in self._lines:
            try:
                if isinstance(line, OrdersOut):
                    line.send(frame)
                else:
                    line.send(frame, zmq.NOBLOCK)
            except (BlockingIOError, zmq.Again) as error:
                missing = missing or error
        if missing is not None:
            raise missing

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
        for line in self._lines:
            if isinstance(line, OrdersOut):
                line.close()
        self._context.destroy(linger=SEND_LIMIT_MS)


class Orders:
    """The orders of a rank, which looks for them for `awake` seconds after the latest one before it sleeps; on another
    machine than the first rank's it sleeps at once."""

    def __init__(self, meeting: Meeting, rank: int, awake: float = 0.0) -> None:
        url = meeting.orders_of(rank)
        self._line: OrdersIn | None = None
        if url.startswith(FILES):
            self._line = OrdersIn(url.removeprefix(FILES), awake)
            return
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = _socket(self._context, zmq.PAIR, meeting)
        self._socket.connect(url)

    def next(self) -> Order:
        """Waits for it; Leave where the first rank has gone."""
        frame = self._socket.recv() if self._line is None else self._line.next()
        return Leave() if frame is None else decode_order(frame)

    def close(self) -> None:
        """A context that the collector finds together with its socket waits for ever for that to close."""
        if self._line is not None:
            self._line.close()
        else:
            self._context.destroy(linger=0)


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
