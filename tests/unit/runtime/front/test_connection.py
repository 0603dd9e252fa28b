"""Clients that speak HTTP badly, over real sockets: what they cost ends, and they learn why."""

import asyncio
import json
import re
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn

from graphpod_policy.http_limits import HttpLimits
from graphpod_runtime.front.server import connection
from graphpod_runtime.front.server.connection import (
    FREE_PIECES,
    HEADER_BYTES,
    MAX_AHEAD,
    PIECE_BYTES,
    WHOLE,
    room_for_connections,
)
from graphpod_runtime.front.server.listen import listen, server

from .conftest import Front

POST = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
LIMITS = HttpLimits()
TINY, LARGE = b"1\r\nx\r\n", b"10000\r\n" + b" " * 65536 + b"\r\n"


def send(front: Front, *parts: bytes) -> tuple[int, bytes]:
    """Sends until the server closes the connection; the bytes that it took, and its answer."""
    address = urlsplit(front.http)
    with socket.create_connection((address.hostname, address.port), timeout=60) as client:
        sent = 0
        try:
            for part in parts:
                client.sendall(part)
                sent += len(part)
        except OSError:
            return sent, b""
        answer = b""
        try:
            while not complete(answer) and (more := client.recv(65536)):
                answer += more
        except OSError:
            pass
        return sent, answer


def complete(answer: bytes) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    return length is not None and len(body) >= int(length[1])


def told(answer: bytes) -> tuple[int, str]:
    """The status, and the message of OpenAI's error object."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), json.loads(body)["error"]["message"]


@pytest.mark.parametrize(
    ("request_bytes", "status", "words"),
    [
        (CHUNKED + TINY * (FREE_PIECES + 10), 400, "chunks of 256 bytes or more"),
        (POST + b"x: " + b"a" * 60_000, 431, "header is too large"),
        (b"GET\r\n\r\n", 400, "not HTTP/1.1"),
        (POST + b"content-length: 5\r\ncontent-length: 6\r\n\r\n{}", 400, "not HTTP/1.1"),
        (POST + b"content-length: -5\r\n\r\n", 400, "not HTTP/1.1"),
        (CHUNKED + b"zz\r\n", 400, "not HTTP/1.1"),
        (b"GET /v1/models?" + b"a" * HEADER_BYTES + b" HTTP/1.1\r\nhost: x\r\n\r\n", 431, "header is too large"),
        (POST + b"x: a\r\n" * HEADER_BYTES, 431, "header is too large"),
        (CHUNKED + b"1;" + b"a" * 60_000, 431, "header is too large"),
        (CHUNKED + b"0\r\nx: " + b"a" * 60_000, 431, "header is too large"),
        (b"\r\n" * HEADER_BYTES, 431, "header is too large"),
        (POST + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400, "not HTTP/1.1"),
        (
            POST + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            400,
            "send transfer-encoding chunked or a length",
        ),
        (b"GET /v1/models HTTP/1.1\r\n\r\n", 400, "has 0 fields host"),
        (b"GET /v1/models HTTP/1.1\r\nhost: x\r\nHost: y\r\n\r\n", 400, "has 2 fields host"),
        (b"CONNECT x:80 HTTP/1.1\r\nhost: x\r\n\r\n", 400, "no proxy"),
        (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * (2 + MAX_AHEAD), 400, "More than 16 requests were sent ahead"),
        (
            POST + f"content-length: {LIMITS.body_bytes + 1}\r\nexpect: 100-continue\r\n\r\n".encode(),
            413,
            "larger than",
        ),
    ],
)
def test_what_is_no_request_is_told_why(front: Front, request_bytes: bytes, status: int, words: str) -> None:
    found, message = told(send(front, request_bytes)[1])
    assert (found, words in message) == (status, True), message
    assert front.post("/v1/completions", {"model": "echo", "prompt": "a"}).status_code == 200


@pytest.mark.parametrize("head", [CHUNKED, POST + b"content-length: 99999999999\r\n\r\n"])
def test_a_body_without_end_is_cut_off(front: Front, head: bytes) -> None:
    parts = 2 * (LIMITS.body_bytes + LIMITS.discard_bytes) // len(LARGE) + 200
    sent, _ = send(front, head, *[LARGE] * parts)
    assert sent < parts * len(LARGE)
    assert "Traceback" not in front.log.read_text()


def test_a_body_of_many_pieces_that_are_not_small_is_read(front: Front) -> None:
    body = json.dumps({"model": "echo", "prompt": "a"}).encode().ljust(PIECE_BYTES)
    pieces = [b"%x\r\n%b\r\n" % (PIECE_BYTES, body), *[b"%x\r\n%b\r\n" % (PIECE_BYTES, b" " * PIECE_BYTES)] * 3000]
    _, answer = send(front, CHUNKED + b"".join(pieces) + b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(("files", "room"), [(1024, 448), (1_048_576, 4096), (-1, 4096), (64, 1)])
def test_half_of_the_file_descriptors_stay_free_for_the_other_server(files: int, room: int) -> None:
    assert room_for_connections(files) == room


async def answers_once(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


class Serving:
    """A server in this process, and clients of it."""

    def __init__(self, app: Any = answers_once, limits: HttpLimits = LIMITS) -> None:
        self._app, self._limits = app, limits

    async def __aenter__(self) -> "Serving":
        self._bound = listen("127.0.0.1", 0)
        self._server: uvicorn.Server = server(self._app, limits=self._limits)
        self._task = asyncio.create_task(self._server.serve([self._bound]))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.should_exit = True
        await self._task

    @property
    def connections(self) -> set[Any]:
        """Those that are open."""
        return self._server.server_state.connections

    async def eventually_empty(self) -> None:
        for _ in range(6000):
            if not self.connections:
                return
            await asyncio.sleep(0.005)
        raise AssertionError(f"never; {len(self.connections)} connections are open")

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self._bound.getsockname()[:2])


def test_a_connection_that_sends_no_request_is_closed() -> None:
    async def run() -> None:
        async with Serving(limits=HttpLimits(header_seconds=0.05)) as serving:
            for beginning in (b"", b"GET / HTTP/1.1\r\nx: ", b"GET / HTTP/1.1\r\nhost: x\r\n\r\nG"):
                reader, writer = await serving.connect()
                writer.write(beginning)
                assert (await reader.read()).count(b"ok") == beginning.endswith(b"G")
                writer.close()

    asyncio.run(run())


def test_one_connection_too_many_is_told_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 2)

    async def run() -> None:
        async with Serving() as serving:
            open_ones = [await serving.connect() for _ in range(2)]
            for _, writer in open_ones:
                writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            for reader, _ in open_ones:
                await reader.readuntil(b"ok")
            reader, writer = await serving.connect()
            answer = await reader.read()
            status, message = told(answer)
            assert (status, "Too many connections" in message, b"\r\nretry-after: 1\r\n" in answer) == (503, True, True)
            for _, one in (*open_ones, (reader, writer)):
                one.close()

    asyncio.run(run())


async def echoes(scope: Any, receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    headers = [(b"content-length", str(len(body)).encode()), (b"said", scope["method"].encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def test_an_application_is_told_when_the_body_has_come_with_its_header() -> None:
    told, asked = list[bool](), asyncio.Event()

    async def telling(scope: Any, receive: Any, send: Any) -> None:
        told.append(WHOLE in scope["extensions"])
        asked.set()
        await echoes(scope, receive, send)

    async def run() -> None:
        async with Serving(telling) as serving:
            reader, writer = await serving.connect()
            for together in (True, False, True):
                asked.clear()
                head, body = POST + b"content-length: 4\r\n\r\n", b"body"
                writer.write(head + body if together else head)
                await asyncio.wait_for(asked.wait(), 30)
                if not together:
                    writer.write(body)
                await reader.readuntil(body)
            writer.close()

    asyncio.run(run())
    assert told == [True, False, True]


def test_a_request_that_offers_http_2_keeps_its_body_and_its_connection() -> None:
    """Java's HTTP client offers it with the first request of each connection."""
    offer = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIAAAAA\r\n"

    async def run() -> None:
        async with Serving(echoes) as serving:
            reader, writer = await serving.connect()
            writer.write(POST + offer + b"content-length: 5\r\n\r\nfirst" + POST + b"content-length: 6\r\n\r\nsecond")
            for body in (b"first", b"second"):
                head = await reader.readuntil(b"\r\n\r\n")
                assert (head.startswith(b"HTTP/1.1 200"), await reader.readexactly(len(body))) == (True, body)
            writer.close()

    asyncio.run(run())


def test_requests_sent_ahead_are_answered_in_order() -> None:
    async def run() -> None:
        async with Serving(echoes) as serving:
            reader, writer = await serving.connect()
            bodies = [b"%02d" % number for number in range(MAX_AHEAD + 1)]
            writer.write(b"".join(POST + b"content-length: 2\r\n\r\n" + body for body in bodies))
            for body in bodies:
                await reader.readuntil(b"\r\n\r\n")
                assert await reader.readexactly(2) == body
            writer.close()

    asyncio.run(run())


def test_a_client_that_goes_ends_the_request_that_is_answered_whatever_it_sent_ahead() -> None:
    async def run() -> None:
        gone, working = asyncio.Event(), asyncio.Event()

        async def waits(scope: Any, receive: Any, send: Any) -> None:
            working.set()
            while (await receive())["type"] != "http.disconnect":
                pass
            gone.set()

        async with Serving(waits) as serving:
            _, writer = await serving.connect()
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * 3)
            await asyncio.wait_for(working.wait(), 30)
            writer.close()
            await asyncio.wait_for(gone.wait(), 30)

    asyncio.run(run())


def test_a_slow_header_does_not_cut_the_answer_before_it() -> None:
    async def run() -> None:
        finish = asyncio.Event()

        async def slow(scope: Any, receive: Any, send: Any) -> None:
            await finish.wait()
            await answers_once(scope, receive, send)

        async with Serving(slow, HttpLimits(header_seconds=0.05)) as serving:
            reader, writer = await serving.connect()
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\nGET / HT")
            await asyncio.sleep(0.2)
            finish.set()
            assert b"ok" in await asyncio.wait_for(reader.readuntil(b"ok"), 30)
            writer.close()

    asyncio.run(run())


def large_answer(size: int) -> Any:
    async def answers(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", str(size).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x" * size})

    return answers


def test_a_client_that_reads_nothing_of_a_long_answer_loses_its_connection() -> None:
    async def run() -> None:
        async with Serving(large_answer(32 << 20), HttpLimits(read_seconds=0.02)) as serving:
            reader, writer = await serving.connect()
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            await serving.eventually_empty()
            writer.close()

    asyncio.run(run())


def test_a_client_that_reads_a_long_answer_slowly_keeps_its_connection() -> None:
    size = 32 << 20

    async def run() -> None:
        async with Serving(large_answer(size)) as serving:
            reader, writer = await serving.connect()
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            (one,) = serving.connections
            waiting, read = one.transport.get_write_buffer_size(), 0
            while one.transport.get_write_buffer_size() == waiting:
                read += len(await reader.read(1 << 20))
            one._look(waiting)
            assert len(await reader.readexactly(size - read)) == size - read
            writer.close()

    asyncio.run(asyncio.wait_for(run(), 30))
