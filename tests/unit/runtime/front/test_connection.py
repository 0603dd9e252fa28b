"""Clients that speak HTTP badly, over real sockets: what they cost ends, and they learn why."""

import asyncio
import json
import re
import socket
from typing import Any
from urllib.parse import urlsplit

import h11
import pytest
import uvicorn

from graphpod_runtime.front import connection
from graphpod_runtime.front.connection import FREE_PIECES, PIECE_BYTES, Pieces, TooManyPieces, room_for_connections
from graphpod_runtime.front.incoming import BODY_LIMIT, DISCARD_LIMIT
from graphpod_runtime.front.listen import listen, server

from .conftest import Front

POST = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
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
            while not complete(answer):
                answer += client.recv(65536) or b"\r\n\r\ncontent-length: 0"
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
        (POST + f"content-length: {BODY_LIMIT + 1}\r\nexpect: 100-continue\r\n\r\n".encode(), 413, "larger than"),
    ],
)
def test_what_is_no_request_is_told_why(front: Front, request_bytes: bytes, status: int, words: str) -> None:
    found, message = told(send(front, request_bytes)[1])
    assert (found, words in message) == (status, True), message
    assert front.post("/v1/completions", {"model": "echo", "prompt": "a"}).status_code == 200


@pytest.mark.parametrize("head", [CHUNKED, POST + b"content-length: 99999999999\r\n\r\n"])
def test_a_body_without_end_is_cut_off(front: Front, head: bytes) -> None:
    parts = 2 * (BODY_LIMIT + DISCARD_LIMIT) // len(LARGE) + 200
    sent, _ = send(front, head, *[LARGE] * parts)
    assert sent < parts * len(LARGE)
    assert "Traceback" not in front.log.read_text()


def test_small_pieces_are_counted_and_large_ones_are_free() -> None:
    pieces = Pieces(h11.SERVER)
    large = b"%x\r\n" % PIECE_BYTES + b"x" * PIECE_BYTES + b"\r\n"
    pieces.receive_data(CHUNKED + large * 5000 + b"0\r\n\r\n")
    assert sum(isinstance(pieces.next_event(), h11.Data) for _ in range(5002)) == 5000
    pieces = Pieces(h11.SERVER)
    pieces.receive_data(CHUNKED + TINY * (FREE_PIECES + 5))
    for _ in range(1 + FREE_PIECES + FREE_PIECES // PIECE_BYTES):
        pieces.next_event()
    with pytest.raises(TooManyPieces):
        pieces.next_event()


@pytest.mark.parametrize(("files", "room"), [(1024, 448), (1_048_576, 4096), (-1, 4096), (64, 1)])
def test_half_of_the_file_descriptors_stay_free_for_the_other_server(files: int, room: int) -> None:
    assert room_for_connections(files) == room


async def answers_once(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


class Serving:
    """A server in this process, and clients of it."""

    async def __aenter__(self) -> "Serving":
        self._bound = listen("127.0.0.1", 0)
        self._server: uvicorn.Server = server(answers_once)
        self._task = asyncio.create_task(self._server.serve([self._bound]))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.should_exit = True
        await self._task

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self._bound.getsockname()[:2])


def test_a_connection_that_sends_no_request_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEADER_SECONDS", 0.05)

    async def run() -> None:
        async with Serving() as serving:
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
            status, message = told(await reader.read())
            assert (status, "Too many connections" in message) == (503, True)
            for _, one in (*open_ones, (reader, writer)):
                one.close()

    asyncio.run(run())
