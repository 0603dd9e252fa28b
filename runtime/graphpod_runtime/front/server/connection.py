"""uvicorn's HTTP/1.1 over llhttp, with bounds on what it leaves open: connections, the size of a request's header and
the time it takes, requests sent ahead, and the pieces that a body comes in (each chunk costs the event loop 2 µs and
more, however small it is).
"""

import asyncio
import json
import resource
import sys
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from graphpod_policy.http_limits import DEFAULT_LIMITS
from graphpod_runtime.front.refusals import REFUSALS
from graphpod_runtime.front.request_id import HEADER, new_id

HEADER_BYTES = 16 << 10
"""Of one request's address and header, and of anything else between two pieces of a body (extensions, trailers)."""
FRAMING_BYTES = 32
"""At most, around one field of a header or one piece of a body that has no extensions."""
MAX_AHEAD = 16
"""Requests that a client sends before it has the answer to an earlier one."""
MAX_CONNECTIONS = 4096
"""Of one server. Each takes about 10 kB and a file descriptor."""
FREE_PIECES, PIECE_BYTES = 256, 256
"""A body may come in so many pieces of any size, and one more for each so many bytes."""
HOP = (b"connection", b"upgrade", b"http2-settings")
"""Fields of a header that asks for another protocol."""
ABORT = "graphpod.abort"
"""The extension of a request's scope that drops its connection at once, with what was not sent yet."""
WHOLE = "graphpod.whole"
"""That the request's body has come already."""
READ = "graphpod.read"
"""That of how long a stream's client may read nothing."""
FILLER = "graphpod.filler"
"""That of bytes without a meaning, which may stand between two parts of the answer's body; set once it has begun."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
PROBE_SECONDS, MOST_PROBE_SECONDS = 0.005, 15.0
"""Between what is written to a client that sends no more: each time is four times the last one. Some clients take
no more than five interim answers."""


def room_for_connections(files: int | None = None) -> int:
    """How many connections one server takes: less than half of the file descriptors, so that the other server of this
    process has room, too.
    """
    if files is None:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if files < 0 else max(1, min(MAX_CONNECTIONS, files // 2 - 64))


class _Refused(Exception):
    """Stops the parser: status and message of the answer."""

    def __init__(self, status: int, message: str, code: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


NO_HTTP = _Refused(400, "The request is not HTTP/1.1.", "invalid_http")
CROWDED = _Refused(503, "Too many connections are open; send the request again.", "too_many_connections")


def _header_too_large() -> _Refused:
    return _Refused(431, "The request's header is too large.", "header_too_large")


class Connection(HttpToolsProtocol):
    """One client's connection. A server has a class of its own with its limits: uvicorn makes the connections."""

    LIMITS = DEFAULT_LIMITS
    _waits: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _probes: asyncio.TimerHandle | None = None
    _answering: RequestResponseCycle | None = None
    """The request that the application works on; `cycle` is the one that was read last."""
    _refused: _Refused | None = None
    _header_read = False
    """Of the request that is being read."""
    _header = _silent = _pieces = _bytes = 0
    """Bytes of its header; bytes read of which the parser has said nothing; pieces and bytes of its body."""
    _data = b""
    """What is being parsed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """503 for one too many."""
        super().connection_made(transport)
        if len(self.connections) > room_for_connections():
            self._refuse(CROWDED, "service_unavailable")
        else:
            self._wait_for_a_header()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends what waits for the connection: timers, the request that is answered, those that were sent ahead."""
        self._stop_waiting()
        self._stop_looking()
        if self._probes is not None:
            self._probes.cancel()
        for cycle in (self._answering, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether answers are owed to a client that sends no more. It has shut down its writing side, or closed the
        connection; both arrive as the same packet, and only what is written to it shows which: a closed one resets.
        """
        last = self.cycle
        if last is None or last.response_complete or last.more_body or self.scheme == "https":
            return False
        if last.scope["http_version"] != "1.1":  # takes no interim answers
            return False
        last.keep_alive = False
        if self._probes is None:
            self._probe_after(PROBE_SECONDS)
        return True

    def pause_writing(self) -> None:
        """More waits for the client than it should."""
        super().pause_writing()
        self._look_again_at(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """The client has read most of it."""
        super().resume_writing()
        self._stop_looking()

    def data_received(self, data: bytes) -> None:
        """Reads what has come."""
        if self.transport.is_closing():
            return
        self._silent += len(data)
        self._feed(data)
        if self.transport.is_closing():
            return
        self._silent = max(0, self._silent)
        if self._silent > HEADER_BYTES:
            self._refuse(_header_too_large())
        elif not self._header_read and (self._answering is None or self._answering.response_complete):
            self._wait_for_a_header()

    def _feed(self, data: bytes) -> None:
        self._data = data
        super().data_received(data)
        self._data = b""

    def send_400_response(self, msg: str) -> None:
        """The reason, as OpenAI's clients read it; after the beginning of an answer its end."""
        self._refuse(self._refused or NO_HTTP)

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._header_read = False
        self._header = self._pieces = self._bytes = 0
        self._silent -= FRAMING_BYTES
        self.scope["extensions"] = {
            ABORT: {"now": self.transport.abort},
            READ: {"seconds": self.LIMITS.read_seconds},
        }

    def on_url(self, url: bytes) -> None:
        """A part of its address."""
        self._count_header(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of its header, or of the trailer after its body."""
        self._count_header(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The request can be answered, or waits for its turn."""
        self._header_read = True
        self._stop_waiting()
        if len(self.pipeline) >= MAX_AHEAD:
            message = f"More than {MAX_AHEAD} requests were sent ahead; wait for answers, or open connections."
            self._stop(_Refused(400, message, "invalid_http"))
        self._refuse_ambiguous()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of its body."""
        self._silent -= len(body) + FRAMING_BYTES
        self._pieces += 1
        self._bytes += len(body)
        if self._pieces > FREE_PIECES + self._bytes // PIECE_BYTES:
            message = f"The request's body came in too many chunks; send chunks of {PIECE_BYTES} bytes or more."
            self._stop(_Refused(400, message, "invalid_http"))
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request has been read."""
        self._header_read = False
        self.scope["extensions"][WHOLE] = {}
        super().on_message_complete()

    def _should_upgrade(self) -> bool:
        """No protocol is changed, but the parser must not read on: after a header that asks for another one (as Java's
        HTTP client does with its first request) it takes no body and no further request.
        """
        return bool(self.parser.should_upgrade())

    def handle_websocket_upgrade(self) -> None:
        """Reads the request, and what came after its header, as if it had not asked for another protocol."""
        upgrade = sys.exception()
        assert isinstance(upgrade, httptools.HttpParserUpgrade)
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        rest = self._data[upgrade.args[0] :]
        if method == b"CONNECT":
            self._refuse(_Refused(400, "This server is no proxy: CONNECT is not supported.", "invalid_http"))
            return
        fields = [(name, value) for name, value in self.headers if name not in HOP]
        closes = any(name == b"connection" and b"close" in value.lower() for name, value in self.headers)
        fields += [(b"connection", b"close")] if closes else []
        head = b"".join(b"%b: %b\r\n" % field for field in fields)
        self.parser = httptools.HttpRequestParser(self)
        self._feed(b"%b %b HTTP/%b\r\n%b\r\n%b" % (method, self.url, version, head, rest))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _count_header(self, size: int) -> None:
        self._silent -= size + FRAMING_BYTES
        self._header += size
        if self._header > HEADER_BYTES:
            self._stop(_header_too_large())

    def _refuse_ambiguous(self) -> None:
        """A request of which a proxy in front of this server may have made something else (RFC 9112, 3.2 and 6.1)."""
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts != 1 and (hosts or self.parser.get_http_version() == "1.1"):
            self._stop(_Refused(400, f"The request's header has {hosts} fields host; send one.", "invalid_http"))
        if any(name == b"transfer-encoding" and value.strip().lower() != b"chunked" for name, value in self.headers):
            message = "The request's body is encoded for its transfer; send transfer-encoding chunked or a length."
            self._stop(_Refused(400, message, "invalid_http"))

    def _stop(self, refused: _Refused) -> None:
        """Ends the parser, which answers with `send_400_response`."""
        self._refused = refused
        raise refused

    def _wait_for_a_header(self) -> None:
        if self._waits is None:
            self._waits = self.loop.call_later(self.LIMITS.header_seconds, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None

    def _probe_after(self, seconds: float) -> None:
        self._probes = self.loop.call_later(seconds, self._probe, min(4 * seconds, MOST_PROBE_SECONDS))

    def _probe(self, next_after: float) -> None:
        """Writes what means nothing to a client that reads on. The second write ends a connection that is closed."""
        cycle = self._answering
        if cycle is None or cycle.response_complete:
            return
        extensions: Any = cycle.scope["extensions"]
        if not cycle.response_started:
            self.transport.write(CONTINUE)
        elif (filler := extensions.get(FILLER)) and not self.flow.write_paused:
            self.transport.write(b"%x\r\n%b\r\n" % (len(filler), filler))
        self._probe_after(next_after)

    def _look_again_at(self, waiting: int) -> None:
        # A stream gives its client up earlier, and says why (openai/stream.py).
        self._unread = self.loop.call_later(self.LIMITS.unread_seconds, self._look, waiting)

    def _look(self, before: int) -> None:
        """Drops the connection when as many bytes wait as `before`."""
        waiting = self.transport.get_write_buffer_size()
        if waiting >= before:
            self.transport.abort()
        else:
            self._look_again_at(waiting)

    def _stop_looking(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _refuse(self, refused: _Refused, kind: str = "invalid_request_error") -> None:
        """Answers where no answer has begun, and closes."""
        answering = self._answering
        if answering is None or answering.response_complete or not answering.response_started:
            error = {"message": str(refused), "type": kind, "param": None, "code": refused.code}
            body, id = json.dumps({"error": error}).encode(), new_id("req")
            # The parser has not read method and path, or not all of them.
            REFUSALS.line(id, "-", "-", refused.status, refused.code)
            fields = {"content-type": "application/json", "connection": "close", HEADER.decode(): id}
            fields["content-length"] = str(len(body))
            if refused.status == 503:
                fields["retry-after"] = "1"
            head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
            self.transport.write(f"HTTP/1.1 {refused.status} \r\n{head}\r\n".encode() + body)
        self.transport.close()
