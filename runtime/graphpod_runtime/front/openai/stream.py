"""Answers that take time: server-sent events, and work that ends when the client has gone.

A stream's status line goes out at once: its request has been admitted, and a gateway would give up a connection that
waits for the first token without one. While nothing comes, a comment line keeps the connection open. A client that
goes is seen by a task that waits for `http.disconnect` alongside the work; whichever ends first cancels the other,
and closing the iterator of pieces aborts the request in the engine.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from graphpod_runtime.front.requests.errors import CLIENT_GONE, ApiError, our_mistake
from graphpod_runtime.front.requests.generation import Generation, Piece

log = logging.getLogger("graphpod.front")

Result = TypeVar("Result")
Encode = Callable[[Piece], msgspec.Struct]

_encoder = msgspec.json.Encoder()

IDLE_SECONDS = 15.0
"""Without an event a stream carries a comment this often; gateways cut a silent connection after 60 s and more."""
COMMENT = b": waiting for tokens\n\n"


class ClientGone(Exception):
    """The connection was closed before the answer was complete."""


def json_response(body: msgspec.Struct) -> Response:
    """200 with a JSON body."""
    return Response(_encoder.encode(body), media_type="application/json")


async def answer(receive: Receive, generation: Generation, reply: Callable[[list[Piece]], msgspec.Struct]) -> Response:
    """The whole answer once every choice has ended."""
    async with contextlib.aclosing(_generator(generation.pieces())) as pieces:
        try:
            collected = await _unless_gone(receive, _collect(pieces))
        except ClientGone:
            return Response(status_code=CLIENT_GONE)
    if generation.options.logprobs is None:
        return json_response(reply(collected))
    # Names of log-probabilities are many: a loop that writes them would not answer probes.
    return await asyncio.to_thread(lambda: json_response(reply(collected)))


class EventStream(Response):
    """The answer as events: `head`, one event a piece, `tail` (made when all has ended), `[DONE]`. `until` is closed
    when the stream has ended.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        generation: Generation,
        encode: Encode,
        head: list[msgspec.Struct],
        tail: Callable[[], list[Any]],
        until: contextlib.ExitStack,
    ) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._generation, self._encode, self._head, self._tail, self._until = generation, encode, head, tail, until
        self._spoke = 0.0
        """Loop time of what was sent last."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._until:
            async with contextlib.aclosing(_generator(self._generation.pieces())) as pieces:
                with contextlib.suppress(ClientGone):
                    await _unless_gone(receive, self._send_all(pieces, send))

    async def _send_all(self, pieces: AsyncGenerator[Piece, None], send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        self._spoke = asyncio.get_running_loop().time()
        idle = asyncio.create_task(self._comment(send))
        try:
            head = _events(self._head)
            async for piece in pieces:
                await self._body(send, head + await self._encoded(piece))
                head = b""
            last = _events(self._tail()) + _event(b"[DONE]")
        # The status line has gone out: clients find an error event in the stream, and no [DONE].
        except ApiError as error:
            last = _event(error.encoded())
        except Exception as error:
            log.exception("a stream failed")
            last = _event(our_mistake(error).encoded())
        finally:
            idle.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await idle
        await self._body(send, last, more=False)

    async def _encoded(self, piece: Piece) -> bytes:
        if piece.said and self._generation.options.echo:
            return await asyncio.to_thread(lambda: _event(_encoder.encode(self._encode(piece))))
        return _event(_encoder.encode(self._encode(piece)))

    async def _comment(self, send: Send) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._spoke + IDLE_SECONDS - loop.time())
            if loop.time() - self._spoke >= IDLE_SECONDS:
                await self._body(send, COMMENT)

    async def _body(self, send: Send, data: bytes, more: bool = True) -> None:
        self._spoke = asyncio.get_running_loop().time()
        await send({"type": "http.response.body", "body": data, "more_body": more})


def _events(items: Iterable[msgspec.Struct]) -> bytes:
    return b"".join(_event(_encoder.encode(item)) for item in items)


def _event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def _generator(pieces: AsyncIterator[Piece]) -> AsyncGenerator[Piece, None]:
    assert isinstance(pieces, AsyncGenerator), "pieces must be closable"
    return pieces


async def _collect(pieces: AsyncIterator[Piece]) -> list[Piece]:
    return [piece async for piece in pieces]


async def _unless_gone(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`. When the client goes first, `work` is cancelled and awaited, and ClientGone raised."""
    task = asyncio.ensure_future(work)
    gone = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        for other in (task, gone):
            if not other.done():
                other.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await other


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
