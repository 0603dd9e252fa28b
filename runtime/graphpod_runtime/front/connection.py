"""uvicorn's HTTP/1.1, with bounds on what it leaves open: connections, the time a request's header takes, and the
pieces that a body comes in (each chunk costs the event loop 10 µs, however small it is).
"""

import asyncio
import json
import resource
import sys
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 30.0
"""A connection without a request: from its beginning, or from a request's first byte, to the end of the header."""
MAX_CONNECTIONS = 4096
"""Of one server. Each takes about 10 kB and a file descriptor."""
FREE_PIECES, PIECE_BYTES = 256, 256
"""A body may come in so many pieces of any size, and one more for each so many bytes."""


def room_for_connections(files: int | None = None) -> int:
    """How many connections one server takes: less than half of the file descriptors, so that the other server of this
    process has room, too.
    """
    if files is None:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if files < 0 else max(1, min(MAX_CONNECTIONS, files // 2 - 64))


class TooManyPieces(h11.RemoteProtocolError):
    """A body came in very many small chunks."""


class Pieces(h11.Connection):
    """Counts the pieces of a body."""

    _pieces = _bytes = 0

    def next_event(self) -> Any:
        """As h11's; raises TooManyPieces too."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._pieces = self._bytes = 0
        elif isinstance(event, h11.Data):
            self._pieces += 1
            self._bytes += len(event.data)
            if self._pieces > FREE_PIECES + self._bytes // PIECE_BYTES:
                raise TooManyPieces("too many chunks")
        return event


class Connection(H11Protocol):
    """One client's connection."""

    _waits: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = Pieces(h11.SERVER, self.conn._max_incomplete_event_size)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """503 for one too many."""
        super().connection_made(transport)
        if len(self.connections) > room_for_connections():
            self._refuse(503, "service_unavailable", "Too many connections are open; send the request again.")
        else:
            self._wait_for_a_header()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends what waits for the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Reads what has come."""
        super().handle_events()
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self.timeout_keep_alive_task is None and not self.transport.is_closing():
            self._wait_for_a_header()

    def send_400_response(self, msg: str) -> None:
        """The error that is being handled, as OpenAI's clients read it; after the beginning of an answer its end."""
        error = sys.exception()
        if isinstance(error, TooManyPieces):
            msg = f"The request's body came in too many chunks; send chunks of {PIECE_BYTES} bytes or more."
            self._refuse(400, "invalid_request_error", msg)
        elif isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == 431:
            self._refuse(431, "invalid_request_error", "The request's header is too large.")
        else:
            self._refuse(400, "invalid_request_error", "The request is not HTTP/1.1.")

    def _wait_for_a_header(self) -> None:
        if self._waits is None:
            self._waits = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None

    def _refuse(self, status: int, kind: str, message: str) -> None:
        """Answers where no answer has begun, and closes."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            error = {"message": message, "type": kind, "param": None, "code": None}
            body = json.dumps({"error": error}).encode()
            head = f"HTTP/1.1 {status} \r\ncontent-type: application/json\r\nconnection: close\r\n"
            self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        self.transport.close()
