"""The machines of an engine, as the leader's sees them: each joins over a TCP connection, which lasts as long as both.

A worker says who it is, what configuration and what software it has, and where the machines share a key, each proves
that it has it.
The leader lets the worker in or says why not. When all have come, it lets the ranks begin. Then the worker reports
how each of its ranks ends. The end of the connection is the end of the other machine's part.
"""

import errno
import hashlib
import platform
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

import graphpod_policy
from graphpod_runtime.base.group_key import GROUP_KEY, nonce, proof, proves
from graphpod_runtime.base.leader import Leader
from graphpod_runtime.engine.ranks.callers import Callers
from graphpod_runtime.engine.ranks.meeting import ranks_of
from graphpod_runtime.wire.messages import UNREADABLE

LINE_BYTES = 4096
SAME = f"set {GROUP_KEY} to the same value on all machines"
SAME_IMAGE = "start all machines from the same image"
HELLO_SECONDS = 10.0
FIRST_SECONDS = 1.0
"""Until the first byte of a worker's, which answers a greeting at once; one that is slower comes again."""
LEAST_SECONDS = 0.01
"""Of a wait: 0 would be none."""
REFUSED_SECONDS = 0.1
"""Between two tries to take a connection where the process has no place for it."""
KEEPALIVE_SECONDS, KEEPALIVE_PROBES = 4, 3
"""A machine that answers nothing has gone after about KEEPALIVE_SECONDS × (1 + KEEPALIVE_PROBES)."""


@cache
def software() -> str:
    """What ranks must have in common besides their configuration: with other sources of ours they would vote at other
    places, and with another torch they may not understand each other, or compute other bits. It imports no torch."""
    sources = hashlib.sha256()
    for package in (Path(graphpod_policy.__file__).parent, Path(__file__).parents[2]):
        for path in sorted(package.rglob("*.py")):
            sources.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes())
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = "of unknown version"
    own = f"graphpod {graphpod_policy.__version__} build {sources.hexdigest()[:10]}"
    return f"{own}, torch {torch}, Python {platform.python_version()}, {platform.machine()}"


class Greeting(msgspec.Struct, frozen=True):
    """The first line of the leader's: what the other end's proof is about."""

    nonce: str


class Hello(msgspec.Struct, frozen=True):
    """The first line of a worker."""

    node: int
    config_hash: str
    nonce: str = ""
    proof: str = ""
    software: str = ""
    model: str = ""
    """As `sample_of` has it."""

    @classmethod
    def of(cls, node: int, config_hash: str, greeting: Greeting, key: str, model: str = "") -> "Hello":
        """With the proof of a worker that has the key."""
        own = nonce()
        proved = proof(key, "worker", greeting.nonce, own, str(node), config_hash)
        return cls(node, config_hash, own, proved, software(), model)

    def is_proved(self, greeting: Greeting, key: str) -> bool:
        """Whether it comes from who has the key."""
        return proves(self.proof, key, "worker", greeting.nonce, self.nonce, str(self.node), self.config_hash)


class Welcome(msgspec.Struct, frozen=True):
    """Its answer; `refused` says why it may not take part."""

    refused: str = ""
    proof: str = ""

    @classmethod
    def of(cls, hello: Hello, greeting: Greeting, key: str) -> "Welcome":
        """With the proof of a leader that has the key."""
        return cls(proof=proof(key, "leader", hello.nonce, greeting.nonce))

    def is_proved(self, hello: Hello, greeting: Greeting, key: str) -> bool:
        """Whether it comes from who has the key."""
        return proves(self.proof, key, "leader", hello.nonce, greeting.nonce)


class Begin(msgspec.Struct, frozen=True):
    """All machines have come, and their ranks begin: earlier, one that waits for another would give up in the end."""


class Ended(msgspec.Struct, frozen=True):
    """A rank of the worker has ended. `code` is as subprocess has it: negative for a signal."""

    rank: int
    code: int


class Line:
    """Lines of JSON over one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._unread = b""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS),
            (socket.TCP_KEEPINTVL, KEEPALIVE_SECONDS),
            (socket.TCP_KEEPCNT, KEEPALIVE_PROBES),
        ):
            connection.setsockopt(socket.IPPROTO_TCP, option, value)

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()

    def say(self, message: msgspec.Struct) -> None:
        """OSError where the other end has gone."""
        self.connection.sendall(msgspec.json.encode(message) + b"\n")

    def heard(self, seconds: float | None = None, first: float | None = None) -> bytes | None:
        """The next line; None at the end of the connection, and for a line that is too long. TimeoutError where the
        whole of it has not come within so many `seconds`, or nothing of it within `first`."""
        began = time.monotonic()
        until = None if seconds is None else began + seconds
        while b"\n" not in self._unread:
            if first is not None:
                until = began + (first if not self._unread or seconds is None else seconds)
            if until is not None and until <= time.monotonic():
                raise TimeoutError(f"no line within {until - began:g} s")
            self.connection.settimeout(None if until is None else max(LEAST_SECONDS, until - time.monotonic()))
            try:
                got = self.connection.recv(LINE_BYTES)
            except OSError as error:
                if isinstance(error, TimeoutError) and error.errno != errno.ETIMEDOUT:
                    raise
                return None  # where the network between is cut, ETIMEDOUT
            self._unread += got
            if not got or len(self._unread) > LINE_BYTES:
                return None
        line, _, self._unread = self._unread.partition(b"\n")
        return line


class Away:
    """A process of another machine, by what its worker reports."""

    pid = 0

    def __init__(self, hang_up: Callable[[], None]) -> None:
        self._hang_up, self._ended = hang_up, threading.Event()
        self.code: int | None = None

    def poll(self) -> int | None:
        return self.code

    def kill(self) -> None:
        """Its worker ends it when the connection ends."""
        self._hang_up()

    def wait(self, timeout: float | None = None) -> int:
        """Nothing is left to wait for once the connection has ended: its code is 0 then, if it was not reported."""
        self._ended.wait(timeout)
        return self.code or 0

    def comes_again(self) -> None:
        """What was reported of it was of a worker that has left."""
        self.code = None
        self._ended.clear()

    def ends(self, code: int | None) -> None:
        """`code` None: its machine has gone."""
        self.code = code if self.code is None else self.code
        self._ended.set()


class Roster:
    """Who has come; the leader's part. `missing` and `gone` may be read by any thread. Until all have come, one that
    leaves may come again."""

    def __init__(self, leader: Leader, nodes: int, ranks: int, config_hash: str, model: str | None = None) -> None:
        """Listens. `model` is what `sample_of` has of the leader's copy; None: any copy is right. OSError where the
        port is taken."""
        self.leader, self.nodes, self._model = leader, nodes, model
        self._ranks, self._hash = ranks, config_hash
        self._lines: dict[int, Line] = {}
        self._complete = False
        """Whether all have come."""
        self._lock = threading.Lock()
        self._callers = Callers()
        self.gone: str = ""
        """The first machine whose connection has ended though ranks of it had not."""
        self.away = {
            rank: Away(lambda node=node: self._hang_up(node))  # type: ignore[misc]
            for node in range(1, nodes)
            for rank in ranks_of(node, nodes, ranks)
        }
        """The processes of all other machines, by rank."""
        self._closed = False
        self._listening = listening(leader.port)
        threading.Thread(target=self._accept, name="roster", daemon=True).start()

    @property
    def missing(self) -> list[int]:
        """Machines that have not joined yet."""
        with self._lock:
            return [node for node in range(1, self.nodes) if node not in self._lines]

    def wait(self, meanwhile: Callable[[list[int]], None], seconds: float = 1.0) -> None:
        """Until all have come, whose ranks begin then; calls `meanwhile` with the missing ones, again and again."""
        while missing := self.missing:
            meanwhile(missing)
            time.sleep(seconds)
        for line in self._lines.values():  # complete: none comes or goes
            with suppress(OSError):
                line.say(Begin())

    def close(self) -> None:
        with self._lock:  # who joins before is hung up on, and no one joins after
            self._closed = True
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # closed alone it would go on listening while a thread accepts
        self._listening.close()
        for node in range(1, self.nodes):
            self._hang_up(node)

    def _hang_up(self, node: int) -> None:
        with self._lock:
            line = self._lines.get(node)
        if line is not None:
            with suppress(OSError):
                line.connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connection, address = self._listening.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(REFUSED_SECONDS)
                continue
            caller = address[0].removeprefix("::ffff:")
            self._callers.comes(connection, caller)
            threading.Thread(target=self._served, args=(connection, caller), daemon=True).start()

    def _served(self, connection: socket.socket, address: str) -> None:
        with connection:
            try:
                line, greeting = Line(connection), Greeting(nonce())
                line.say(greeting)
                hello = msgspec.json.decode(line.heard(HELLO_SECONDS, FIRST_SECONDS) or b"", type=Hello)
                # before it joins: strangers who come meanwhile must not end the connection of one that has
                if not self._callers.goes(connection):
                    return  # they have ended it, and it comes again
                if refused := self._joined(hello, greeting, line):
                    line.say(Welcome(refused))
                    return
                try:
                    self._follow(hello.node, line)
                finally:
                    self._leaves(hello.node, address)
            except (OSError, *UNREADABLE):
                return  # a stranger, or a worker that comes again
            finally:
                self._callers.goes(connection)

    def _joined(self, hello: Hello, greeting: Greeting, line: Line) -> str:
        """Why it may not, or "" for one that is on the roster from now on, and knows it. ConnectionAbortedError once
        the roster is closed: that of the next leader decides.
        """
        if not hello.is_proved(greeting, self.leader.key):
            return f"machine {hello.node} does not prove the key of the group: {SAME}"
        with self._lock:
            if self._closed:
                raise ConnectionAbortedError("the roster is closed")
            refused = self._refused(hello)
            if not refused:
                line.say(Welcome.of(hello, greeting, self.leader.key))  # in front of Begin
                self._lines[hello.node] = line
                self._complete = len(self._lines) == self.nodes - 1
            return refused

    def _refused(self, hello: Hello) -> str:
        if not 0 < hello.node < self.nodes:
            return f"there is no machine {hello.node}: the leader's is 0, and the others are 1 to {self.nodes - 1}"
        if hello.software != software():
            theirs = hello.software or "of an earlier version"
            return f"machine {hello.node} has other software ({theirs}) than the leader's ({software()}): {SAME_IMAGE}"
        if hello.config_hash != self._hash:
            return (
                f"machine {hello.node} has another configuration ({hello.config_hash[:10]}) than the leader's "
                f"({self._hash[:10]}): all need the same options, and the model at the same path"
            )
        if self._model not in (None, hello.model):
            return (
                f"machine {hello.node} has other files of the model than the leader's, in the folder of the same path: "
                "copy the same model to all machines"
            )
        if hello.node in self._lines:
            return (
                f"machine {hello.node} has joined already: each has a --node-index of its own, and one that is started "
                "again is let in when the leader's has been, too"
            )
        return ""

    def _follow(self, node: int, line: Line) -> None:
        """Until its connection ends."""
        own = ranks_of(node, self.nodes, self._ranks)
        while (said := line.heard()) is not None:
            try:
                ended = msgspec.json.decode(said, type=Ended)
            except UNREADABLE:
                break
            if ended.rank in own:
                self.away[ended.rank].ends(ended.code)

    def _leaves(self, node: int, address: str) -> None:
        """Its connection has ended."""
        own = ranks_of(node, self.nodes, self._ranks)
        with self._lock:
            if not self._complete:
                del self._lines[node]
                for rank in own:
                    self.away[rank].comes_again()
                return
        alive = [rank for rank in own if self.away[rank].code is None]
        if alive:
            self.gone = self.gone or f"machine {node} of {self.nodes} ({address}) has gone, with {_named(own)}"
        for rank in alive:
            self.away[rank].ends(None)


def listening(port: int) -> socket.socket:
    """On all addresses of this machine. OSError where the port is taken."""
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    return socket.create_server(("", port), family=family, dualstack_ipv6=dual)


def _named(ranks: range) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
