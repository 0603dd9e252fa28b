"""Answers that take time: server-sent events, and work that ends when the client has gone.

The first piece is awaited before the status line is sent, so an error before the first token is a status of its own.
A client that goes is seen by a task that waits for `http.disconnect` beside the work; whichever ends first cancels
the other, and closing the iterator of pieces aborts the request in the engine.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from graphpod_runtime.front.generation import Generation, Piece
from graphpod_runtime.front.openai.errors import ApiError

Result = TypeVar("Result")
Encode = Callable[[Piece], msgspec.Struct]

_encoder = msgspec.json.Encoder()

CLIENT_GONE = 499
"""The status that nobody receives; metrics count it."""


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
    return json_response(reply(collected))


async def event_stream(
    receive: Receive, generation: Generation, encode: Encode, head: list[msgspec.Struct], tail: Callable[[], list[Any]]
) -> Response:
    """The answer as events: `head`, one event a piece, `tail` (made when all has ended), `[DONE]`."""
    pieces = _generator(generation.pieces())
    try:
        first = await _unless_gone(receive, anext(pieces))
    except ClientGone:
        await pieces.aclose()
        return Response(status_code=CLIENT_GONE)
    except BaseException:
        await pieces.aclose()
        raise
    return _EventStream(first, pieces, encode, head, tail)


class _EventStream(Response):
    media_type = "text/event-stream"

    def __init__(
        self,
        first: Piece,
        pieces: AsyncGenerator[Piece, None],
        encode: Encode,
        head: list[msgspec.Struct],
        tail: Callable[[], list[Any]],
    ) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._first, self._pieces, self._encode, self._head, self._tail = first, pieces, encode, head, tail

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with contextlib.aclosing(self._pieces):
            with contextlib.suppress(ClientGone):
                await _unless_gone(receive, self._send_all(send))

    async def _send_all(self, send: Send) -> None:
        async def body(data: bytes, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": more})

        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await body(b"".join(_event(_encoder.encode(item)) for item in (*self._head, self._encode(self._first))))
        try:
            async for piece in self._pieces:
                await body(_event(_encoder.encode(self._encode(piece))))
        except ApiError as error:
            # The status line has gone out: clients find an error event in the stream, and no [DONE].
            await body(_event(error.encoded()), more=False)
            return
        await body(b"".join(_event(_encoder.encode(item)) for item in self._tail()) + _event(b"[DONE]"), more=False)


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
