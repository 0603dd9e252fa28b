"""The answer of a pod's port, as bytes that have come through a port-forward."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import aiohttp
import pytest

from graphpod_operator.kube.connection import Connection
from graphpod_operator.kube.port_forward import DATA, ERROR, NoAnswer, body, get, is_whole

HEAD = b"HTTP/1.1 200 OK\r\n"


def test_an_answer_is_whole_once_its_length_has_come() -> None:
    answer = HEAD + b"Content-Length: 5\r\n\r\nhello"
    assert [is_whole(answer[:end]) for end in (10, len(answer) - 1, len(answer))] == [False, False, True]
    assert not is_whole(HEAD + b"\r\nhello"), "without a length it ends with the connection"


@pytest.mark.parametrize(
    "answer",
    [
        HEAD + b"Content-Length: 5\r\n\r\nhello",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        HEAD + b"Connection: close\r\n\r\nhello",
    ],
)
def test_a_body_is_read_however_its_end_is_marked(answer: bytes) -> None:
    assert body(answer, "/metrics", 100) == b"hello"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "no HTTP server"),
        (b"SSH-2.0", "no HTTP server: SSH-2.0"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "answered 404"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere\r\n\r\n", "answered 302"),
        (HEAD + b"Content-Length: 50\r\n\r\nhello", "ended 45 bytes early"),
        (HEAD + b"Content-Length: 500\r\n\r\n" + b"x" * 500, "more than 0 KiB"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffffff\r\nhello", "no HTTP server"),
        (HEAD + b"X: y\r\n" * 200 + b"\r\n", "no HTTP server"),
    ],
)
def test_anything_else_is_no_answer(answer: bytes, said: str) -> None:
    with pytest.raises(NoAnswer, match=said):
        body(answer, "/metrics", 100)


class Closed:
    """A WebSocket that the kubelet closed before the request was sent, and what it had sent until then."""

    def __init__(self, said: Sequence[bytes]) -> None:
        self._said = said

    @asynccontextmanager
    async def websocket(self, *_: object) -> AsyncIterator["Closed"]:
        yield self

    async def send_bytes(self, _: bytes) -> None:
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")

    async def __aiter__(self) -> AsyncIterator[aiohttp.WSMessage]:
        for data in self._said:
            yield aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, data, None)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            [bytes([DATA]) + b"AA", bytes([ERROR]) + b"AA", bytes([ERROR]) + b"dial :8001: connection refused"],
            "nothing listens on port 8001",
        ),
        ([bytes([DATA]) + b"AA"], "/warmup: the connection closed without an answer"),
    ],
)
def test_a_port_that_is_closed_at_once_is_reported_in_the_words_of_the_kubelet(said: list[bytes], why: str) -> None:
    with pytest.raises(NoAnswer) as caught:
        asyncio.run(get(cast(Connection, Closed(said)), "team", "chat-0", 8001, "/warmup", 100, 10))
    assert str(caught.value) == why
