"""Clients that shut down their writing side once their request is sent, over real sockets, and those that are gone."""

import asyncio
import http.client
import json
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest

from graphpod_runtime.front.server import connection
from graphpod_runtime.front.server.connection import CONTINUE, FILLER

from .conftest import Front
from .test_connection import POST, Serving, answers_once, echoes

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
TEXT = {"model": "echo", "prompt": "abc"}


@pytest.fixture
def many_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends no more is written to all the time."""
    monkeypatch.setattr(connection, "PROBE_SECONDS", 0.001)
    monkeypatch.setattr(connection, "MOST_PROBE_SECONDS", 0.001)


def half_closed(url: str, request: bytes) -> bytes:
    """The body of the answer to a client that sends no more, read by Python's own; the connection has ended then."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=60) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        response = http.client.HTTPResponse(client)
        response.begin()
        body = response.read()
        assert client.recv(1) == b""
        return body


def completion(**fields: Any) -> bytes:
    body = json.dumps(TEXT | fields).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    return head + b"content-length: %d\r\n\r\n%b" % (len(body), body)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (completion(), b'"text":"abc"'),
        (completion(stream=True), b"data: [DONE]"),
        (completion(max_tokens=3000, ignore_eos=True), b'"completion_tokens":3000'),
        (completion(max_tokens=3000, ignore_eos=True, stream=True), b"data: [DONE]"),
        (completion(n=0), b'"code": "invalid_value"'),
        (GET.replace(b" / ", b" /v1/models "), b'"max_model_len"'),
    ],
)
def test_a_client_that_sends_no_more_gets_its_answer(front: Front, body: bytes, words: bytes) -> None:
    assert words in half_closed(front.http, body)


def test_the_port_of_probes_answers_a_client_that_sends_no_more(front: Front) -> None:
    assert half_closed(front.admin, GET.replace(b" / ", b" /warmup ")).startswith(b"{")


def test_an_answer_that_takes_its_time_comes_after_interim_ones(many_probes: None) -> None:
    async def run() -> None:
        finish = asyncio.Event()

        async def slow(scope: Any, receive: Any, send: Any) -> None:
            await finish.wait()
            await answers_once(scope, receive, send)

        async with Serving(slow) as serving:
            reader, writer = await serving.connect()
            writer.write(GET)
            writer.write_eof()
            assert await reader.readexactly(3 * len(CONTINUE)) == 3 * CONTINUE
            finish.set()
            answer = await reader.read()
            assert answer.replace(CONTINUE, b"").startswith(b"HTTP/1.1 200"), answer
            assert answer.endswith(b"connection: close\r\n\r\nok")
            writer.close()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_requests_sent_ahead_are_answered_before_the_connection_closes(many_probes: None) -> None:
    async def run() -> None:
        async with Serving(echoes) as serving:
            reader, writer = await serving.connect()
            writer.write(b"".join(POST + b"content-length: 1\r\n\r\n%d" % number for number in range(3)))
            writer.write_eof()
            answers = (await reader.read()).replace(CONTINUE, b"").split(b"HTTP/1.1 200 OK")
            assert [answer[-1:] for answer in answers[1:]] == [b"0", b"1", b"2"]
            writer.close()

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.parametrize("begun", [False, True])
def test_a_client_that_has_closed_its_connection_ends_the_request(many_probes: None, begun: bool) -> None:
    async def run() -> None:
        working, gone = asyncio.Event(), asyncio.Event()

        async def waits(scope: Any, receive: Any, send: Any) -> None:
            scope["extensions"][FILLER] = b": \n\n"
            if begun:
                await send({"type": "http.response.start", "status": 200, "headers": []})
            working.set()
            while (await receive())["type"] != "http.disconnect":
                pass
            gone.set()

        async with Serving(waits) as serving:
            _, writer = await serving.connect()
            writer.write(GET)
            await working.wait()
            writer.close()
            await gone.wait()

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.parametrize(
    "unanswered", [POST + b"content-length: 9\r\n\r\n{", GET[:-2], b"", GET.replace(b"1.1", b"1.0")]
)
def test_what_is_no_whole_request_of_http_1_1_is_not_answered_to_a_client_that_sends_no_more(unanswered: bytes) -> None:
    async def run() -> None:
        async def waits(scope: Any, receive: Any, send: Any) -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        async with Serving(waits) as serving:
            reader, writer = await serving.connect()
            writer.write(unanswered)
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()

    asyncio.run(asyncio.wait_for(run(), 30))
