"""Connections to servers that answer byte by byte what these tests say."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from graphpod_runtime.bench.serve.drive import connection
from graphpod_runtime.bench.serve.drive.client import Answer, Ask, Client
from graphpod_runtime.bench.serve.drive.connection import Connections
from graphpod_runtime.bench.serve.drive.messages import Target
from graphpod_runtime.bench.serve.figures.record import Outcome

EVENTS = b'data: {"choices":[{"text":"a","finish_reason":"length"}]}\n\ndata: [DONE]\n\n'
SIZED = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(EVENTS) + EVENTS
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n" % len(EVENTS) + EVENTS + b"\r\n0\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + EVENTS
BODY = b'{"prompt":[1]}'

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(serve: Serve, key: str | None = None, seconds: float = 30) -> AsyncIterator[Client]:
    """A client of a server that has `serve` for each connection."""
    tasks = set[asyncio.Task[None]]()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    target = Target(f"http://127.0.0.1:{port}/prefix/v1", "m", key, seconds)
    with contextlib.closing(Connections(target)) as connections:
        yield Client(connections, target)
    server.close()
    for task in tasks:
        task.cancel()


async def request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    assert await reader.readexactly(len(BODY)) == BODY
    return head


async def asked(client: Client, cancel_after: int | None = None) -> Answer:
    answer = Answer()
    await client.ask(Ask("/completions", BODY, cancel_after), answer)
    return answer


def answers(answer: bytes, *, closes: bool = False) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await request(reader)
            writer.write(answer)
            if closes:
                return

    return serve


@pytest.mark.parametrize(("answer", "closes"), [(SIZED, False), (CHUNKED, False), (UNTIL_CLOSE, True)])
def test_an_answer_ends_as_its_header_says(answer: bytes, closes: bool) -> None:
    async def run() -> list[Answer]:
        async with serving(answers(answer, closes=closes)) as client:
            return [await asked(client) for _ in range(3)]

    for found in asyncio.run(run()):
        assert (found.outcome, found.text, len(found.stamps)) == (Outcome.Completed, "a", 1)


def test_a_connection_is_kept_and_its_requests_have_one_form() -> None:
    heads: list[bytes] = []
    connected = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connected
        connected += 1
        while True:
            heads.append(await request(reader))
            writer.write(SIZED)

    async def run() -> None:
        async with serving(serve, "secret") as client:
            for _ in range(3):
                await asked(client)

    asyncio.run(run())
    assert connected == 1
    assert heads == 3 * heads[:1]
    assert heads[0].startswith(b"POST /prefix/v1/completions HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nAuthorization: Bearer secret\r\n" in heads[0]


def test_one_that_was_idle_for_too_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "KEEP_SECONDS", 0.0)
    connected = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connected
        connected += 1
        await answers(SIZED)(reader, writer)

    async def run() -> None:
        async with serving(serve) as client:
            for _ in range(3):
                assert (await asked(client)).outcome is Outcome.Completed

    asyncio.run(run())
    assert connected == 3


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (SIZED[:-20], "connection lost"),
        (CHUNKED[:-5], "connection lost"),
        (b"", "connection lost"),
        (b"SSH-2.0-OpenSSH\r\n", "connection lost"),
        (b"HTTP/1.1 429 Busy\r\ncontent-length: 4\r\n\r\nbusy", "HTTP 429"),
        (SIZED.replace(b'{"choices"', b'["choices"'), "not an OpenAI stream"),
    ],
)
def test_what_is_no_whole_answer_is_a_failure_of_its_kind(answer: bytes, error: str) -> None:
    async def run() -> Answer:
        async with serving(answers(answer, closes=True)) as client:
            return await asked(client)

    found = asyncio.run(run())
    assert (found.outcome, found.error) == (Outcome.Failed, error)
    assert found.message


def test_an_answer_that_does_not_come_in_time_and_a_server_that_is_not_there_are_failures() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def run() -> tuple[Answer, Answer]:
        async with serving(silent, seconds=0.05) as client:
            late = await asked(client)
        return late, await asked(client)

    late, nowhere = asyncio.run(run())
    assert (late.error, nowhere.error) == ("timeout", "cannot connect")


def test_a_client_that_leaves_closes_its_connection() -> None:
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(CHUNKED[: -len(b"data: [DONE]\n\n\r\n0\r\n\r\n")])
        with contextlib.suppress(ConnectionError):
            await reader.read()
        left.set()

    async def run() -> Answer:
        async with serving(serve) as client:
            answer = await asked(client, cancel_after=1)
            await asyncio.wait_for(left.wait(), 30)
            return answer

    assert asyncio.run(run()).outcome is Outcome.Cancelled
