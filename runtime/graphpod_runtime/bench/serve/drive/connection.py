"""HTTP/1.1 connections that ask one request at a time, and time what comes as it is read from the socket.

What a client does between the clock and the socket counts as the server's time. A general client does much: with
aiohttp the first token of an idle server came 1 ms later.
"""

import asyncio
import ssl
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import httptools

from graphpod_runtime.bench.serve.drive.messages import Target

CONNECT_SECONDS = 30.0
KEEP_SECONDS = 2.0
"""How long a connection may be idle. Servers close theirs after 5 s; a request that meets the close is lost."""

Take = Callable[[int, bytes, float], bool]
"""Gets the status, a part of the body, and when it came by time.monotonic(); whether the rest is wanted."""


class CannotConnect(OSError):
    """The server takes no connection."""


class Connection(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._take: Take
        self._done: asyncio.Future[None] | None = None
        self.usable = True
        """For another request, once the one before has ended."""
        self.idle_since = 0.0

    def send(self, request: bytes, take: Take) -> "asyncio.Future[None]":
        """Done when the answer has ended or is not wanted any more. OSError where the connection is lost before."""
        self._take, self._parts, self._complete, self._until_close = take, list[bytes](), False, True
        self._parser = httptools.HttpResponseParser(self)
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._done

    def close(self) -> None:
        """At once, with what has not been read."""
        self.usable = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Gives what has come of the body to whoever asked."""
        now = time.monotonic()
        if self._done is None:
            return self.close()  # nothing was asked
        try:
            self._parser.feed_data(data)
            parts, self._parts = self._parts, []
            wanted = not parts or self._take(self._parser.get_status_code(), b"".join(parts), now)
        except httptools.HttpParserError as error:
            return self._end(OSError(f"the answer is no HTTP/1.1: {error}"))
        except Exception as error:  # noqa: BLE001 (whoever asked raises it)
            return self._end(error)
        if not wanted:
            self.close()
        if self._complete or not wanted:
            self._end()
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        """The end of an answer that says nothing of its length; of any other one, a loss."""
        self.usable = False
        if self._done is not None:
            whole = exc is None and self._until_close and self._headers_read
            self._end(None if whole else OSError(f"the server closed it: {exc or 'the answer was not complete'}"))

    def on_message_begin(self) -> None:
        self._headers_read = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._until_close = False

    def on_headers_complete(self) -> None:
        self._headers_read = True

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        self._complete = True
        self.usable = self._parser.should_keep_alive()

    _headers_read = False

    def _end(self, error: Exception | None = None) -> None:
        done, self._done = self._done, None
        if error is not None:
            self.close()
        self.idle_since = time.monotonic()
        if done is None or done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)


class Connections:
    """To one server, as many as requests at a time, kept open between them. Answers come uncompressed."""

    def __init__(self, target: Target) -> None:
        url = urlsplit(target.base)
        self._host, self._port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
        self._tls = ssl.create_default_context() if url.scheme == "https" else None
        self._path = url.path
        fields = [
            f"Host: {url.netloc.rpartition('@')[2]}",
            "Content-Type: application/json",
            "Accept-Encoding: identity",
        ]
        if target.key is not None:
            fields.append(f"Authorization: Bearer {target.key}")
        self._fields = "\r\n".join(fields)
        self._idle: list[Connection] = []

    def request(self, path: str, body: bytes) -> bytes:
        """A POST of `body` to a path below the base."""
        head = f"POST {self._path}{path} HTTP/1.1\r\n{self._fields}\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    async def take(self) -> Connection:
        """An idle connection, or a new one. CannotConnect."""
        while self._idle:
            found = self._idle.pop()
            if found.usable and time.monotonic() - found.idle_since < KEEP_SECONDS:
                return found
            found.close()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                loop = asyncio.get_running_loop()
                return (await loop.create_connection(Connection, self._host, self._port, ssl=self._tls))[1]
        except TimeoutError as error:
            raise CannotConnect(f"no connection within {CONNECT_SECONDS:g} s") from error
        except OSError as error:
            raise CannotConnect(str(error)) from error

    def give_back(self, connection: Connection) -> None:
        """For the next request."""
        if connection.usable:
            self._idle.append(connection)

    def close(self) -> None:
        """Closes those that are idle."""
        for connection in self._idle:
            connection.close()
