"""The wire over a real connection: lines as they come, silence, and what each answer counts as."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio import client

from graphpod_operator.kube.cluster import Expired, Unavailable
from graphpod_operator.kube.connection import Connection

Handler = Callable[[web.StreamResponse], Awaitable[None]]


class Far:
    """An API server of one handler, and the wire to it."""

    def __init__(self) -> None:
        self.counted: list[tuple[str, str]] = []
        self.status = 200
        self.silent_seconds = 60.0
        self.body: Handler = self._nothing
        self.wire: Connection | None = None

    async def _nothing(self, response: web.StreamResponse) -> None:
        """An empty answer."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=self.status)
        await response.prepare(request)
        await self.body(response)
        return response

    async def lines(self) -> list[bytes]:
        told: list[bytes] = []
        assert self.wire is not None
        await self.wire.lines("/", {}, self.silent_seconds, told.append)
        return told


@pytest.fixture
async def far() -> AsyncIterator[Far]:
    made, app = Far(), web.Application()
    app.router.add_get("/", made.answer)
    async with TestServer(app) as server:
        configuration = client.Configuration(host=str(server.make_url("")).rstrip("/"))
        made.wire = Connection(
            client.ApiClient(configuration), lambda code, method, _: made.counted.append((code, method))
        )
        yield made
        await made.wire.close()


async def test_a_line_is_told_once_it_is_whole_however_it_came(far: Far) -> None:
    async def body(response: web.StreamResponse) -> None:
        for part in (b'{"a"', b": 1}\n{", b'"b": 2}\n{"c": 3}\n{"cut'):
            await response.write(part)
            await asyncio.sleep(0.01)

    far.body = body
    assert await far.lines() == [b'{"a": 1}', b'{"b": 2}', b'{"c": 3}']
    assert far.counted == [("200", "GET")]


async def test_silence_ends_the_answer_and_is_no_error(far: Far) -> None:
    async def body(response: web.StreamResponse) -> None:
        await response.write(b"one\n")
        await asyncio.Event().wait()

    far.silent_seconds, far.body = 0.1, body
    assert await far.lines() == [b"one"]
    assert far.counted == [("200", "GET")]


async def test_an_answer_that_is_cut_is_no_answer_and_counts_once(far: Far) -> None:
    async def body(response: web.StreamResponse) -> None:
        await response.write(b"one\ntw")
        transport = response._req.transport  # type: ignore[union-attr]
        assert transport is not None
        transport.abort()

    far.body = body
    with pytest.raises(Unavailable, match="did not answer"):
        await far.lines()
    assert far.counted == [("200", "GET")]


async def test_an_answer_that_says_no_is_told_by_its_status(far: Far) -> None:
    async def body(response: web.StreamResponse) -> None:
        await response.write(b'{"message": "too old"}')

    far.status, far.body = 410, body
    with pytest.raises(Expired, match="too old"):
        await far.lines()
    assert far.counted == [("410", "GET")]


async def test_a_server_that_is_away_counts_as_an_error(far: Far) -> None:
    api = client.ApiClient(client.Configuration(host="http://127.0.0.1:1"))
    far.wire = Connection(api, lambda code, method, _: far.counted.append((code, method)))
    with pytest.raises(Unavailable):
        await far.lines()
    assert far.counted == [("<error>", "GET")]
