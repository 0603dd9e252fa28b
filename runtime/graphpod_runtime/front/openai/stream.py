"""Answers that take time: server-sent events, and work that ends when the client has gone.

A stream's status line goes out at once: its request has been admitted, and a gateway would give up a connection that
waits for the first token without one. While nothing comes, a comment line keeps the connection open. A client that
goes is seen by a task that waits for `http.disconnect` alongside the work; whichever ends first cancels the other,
and closing the iterator of pieces aborts the request in the engine.

A client that reads slowly stops `send` (64 kB wait for it in this process, more in the kernel), and what the engine
makes meanwhile gathers as token ids. Too many of them, or a `send` that takes a minute, end the request: an error event
in case the client reads on, and the connection closes. Other streams never wait for it.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from graphpod_runtime.front.openai.chunks import Events
from graphpod_runtime.front.request_id import request_id
from graphpod_runtime.front.requests.engine_stream import MOST_WAITING
from graphpod_runtime.front.requests.errors import CLIENT_GONE, ApiError, our_mistake, slow_reader
from graphpod_runtime.front.requests.generation import Generation, Piece
from graphpod_runtime.front.server.connection import ABORT, FILLER, READ
from graphpod_runtime.wire.messages import FinishReason

log = logging.getLogger("graphpod.front")

Result = TypeVar("Result")

_encoder = msgspec.json.Encoder()

IDLE_SECONDS = 15.0
"""Without an event a stream carries a comment this often; gateways cut a silent connection after 60 s and more."""
COMMENT = b": waiting for tokens\n\n"
SMALL_TOKENS = 512
"""Of an answer, and of what it repeats of its prompt. One takes some microseconds to read and to write."""
FAREWELL_SECONDS = 30.0
"""In which a client that was given up may read the error event; then its connection is dropped."""


class ClientGone(Exception):
    """The connection was closed before the answer was complete."""


class SlowReader(Exception):
    """The client does not read its answer; the message says what was too much."""


def json_response(body: msgspec.Struct) -> Response:
    """200 with a JSON body."""
    return Response(_encoder.encode(body), media_type="application/json")


async def answer(receive: Receive, generation: Generation, reply: Callable[[list[Piece]], msgspec.Struct]) -> Response:
    """The whole answer once every choice has ended."""
    async with contextlib.aclosing(closable(generation.pieces())) as pieces:
        try:
            collected = await unless_gone(receive, _collect(pieces))
        except ClientGone:
            return Response(status_code=CLIENT_GONE)
    if is_small(generation):
        return json_response(reply(collected))
    # A loop that writes a large answer would delay all streams.
    return await asyncio.to_thread(lambda: json_response(reply(collected)))


def is_small(generation: Generation) -> bool:
    """Whether an answer takes less time to write than others would notice: few tokens, and no log-probabilities, whose
    names are many.
    """
    options = generation.options
    if options.logprobs is not None or options.prompt_logprobs is not None:
        return False
    repeated = options.choices * generation.prompt_tokens if options.echo or options.token_ids else 0
    return generation.completion_tokens + repeated <= SMALL_TOKENS


class EventStream(Response):
    """An answer's `events` as its pieces come. `until` is closed when the stream has ended."""

    media_type = "text/event-stream"

    def __init__(self, generation: Generation, events: Events, until: contextlib.ExitStack) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._generation, self._events, self._until = generation, events, until
        self._spoke = 0.0
        """Loop time of what was sent last, or is being sent."""
        self._sending = 0
        self._begun = self._ended = False
        self._opened: set[int] = set()
        """The choices that have had an event, of an answer that repeats its prompt."""
        self._stalled_seconds: float
        """A client that reads nothing for so long, while there is something to read, is given up."""
        self._id = ""
        """The request's, for the log."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._id = request_id(scope)
        self._stalled_seconds = scope["extensions"][READ]["seconds"]
        scope["extensions"][FILLER] = COMMENT
        try:
            with self._until:
                await self._answer(receive, send)
        except ClientGone:
            return
        except SlowReader as why:
            # The request has ended, and others have its place.
            error = slow_reader(str(why))
            log.info("stream %s was given up: %s", self._id, error.message)
            await self._say_farewell(error, scope, receive, send)

    async def _answer(self, receive: Receive, send: Send) -> None:
        slow: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def give_up(why: str) -> None:
            if not slow.done():
                self._generation.abandoned = FinishReason.SlowReader  # before the work is cancelled, which ends it
                slow.set_result(why)

        self._generation.overrun = lambda: give_up(f"{MOST_WAITING} tokens wait to be read")
        self._generation.begin(self._until)
        async with contextlib.aclosing(closable(self._generation.pieces())) as pieces:
            await unless_gone(receive, self._send_all(pieces, send, give_up), slow)

    async def _send_all(
        self, pieces: AsyncGenerator[list[Piece], None], send: Send, give_up: Callable[[str], None]
    ) -> None:
        self._spoke = asyncio.get_running_loop().time()
        watch = asyncio.create_task(self._watch(send, give_up))
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            self._begun = True
            await self._body(send, await self._send_pieces(pieces, send), more=False)
        finally:
            await _cancelled(watch)

    async def _send_pieces(self, pieces: AsyncGenerator[list[Piece], None], send: Send) -> bytes:
        """Sends all but the last events, and returns those."""
        try:
            if begin := self._events.begin():
                await self._body(send, begin)
            async for together in pieces:
                if data := await self._encoded(together):
                    await self._body(send, data)
            return self._events.end()
        # The status line has gone out: clients find an error event in the stream, and no [DONE].
        except ApiError as error:
            log.info("stream %s ended with an error: code=%s %s", self._id, error.code, error.message)
            return self._events.failed(error)
        except Exception as error:
            log.exception("stream %s failed", self._id)
            return self._events.failed(our_mistake(error))

    async def _say_farewell(self, error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
        """The error as the last event; the connection is dropped where even that is not read."""
        if self._begun:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FAREWELL_SECONDS):
                    await self._body(send, self._events.failed(error), more=False)
                return
        scope["extensions"][ABORT]["now"]()
        await _disconnected(receive)

    async def _encoded(self, pieces: list[Piece]) -> bytes:
        """The events of pieces. The first ones of a choice may repeat its prompt."""
        options = self._generation.options
        if options.echo or options.token_ids:
            fresh = {piece.index for piece in pieces} - self._opened
            self._opened |= fresh
            if fresh and not is_small(self._generation):
                return await asyncio.to_thread(self._events.pieces, pieces)
        return self._events.pieces(pieces)

    async def _watch(self, send: Send, give_up: Callable[[str], None]) -> None:
        """Comments while nothing comes; gives the client up when it has read nothing for too long."""
        loop, comment = asyncio.get_running_loop(), asyncio.create_task(asyncio.sleep(0))
        try:
            while True:
                quiet = loop.time() - self._spoke
                if self._sending and quiet >= self._stalled_seconds:
                    return give_up(f"nothing of it was read for {self._stalled_seconds:g} s")
                if not self._sending and quiet >= IDLE_SECONDS:
                    comment = asyncio.create_task(self._comment(send))
                    quiet = 0.0
                wait = self._stalled_seconds if self._sending else IDLE_SECONDS
                await asyncio.sleep(min(IDLE_SECONDS, wait - quiet))
        finally:
            await _cancelled(comment)

    async def _comment(self, send: Send) -> None:
        if not self._ended:
            await self._body(send, COMMENT)

    async def _body(self, send: Send, data: bytes, more: bool = True) -> None:
        self._spoke = asyncio.get_running_loop().time()
        self._sending += 1
        self._ended = not more
        try:
            await send({"type": "http.response.body", "body": data, "more_body": more})
        finally:
            self._sending -= 1


def closable(pieces: AsyncIterator[list[Piece]]) -> AsyncGenerator[list[Piece], None]:
    """The same iterator; closing it aborts what still runs."""
    assert isinstance(pieces, AsyncGenerator), "pieces must be closable"
    return pieces


async def _collect(pieces: AsyncIterator[list[Piece]]) -> list[Piece]:
    return [piece async for together in pieces for piece in together]


async def unless_gone(
    receive: Receive, work: Coroutine[Any, Any, Result], slow: "asyncio.Future[str] | None" = None
) -> Result:
    """The result of `work`. When the client goes first, `work` is cancelled and awaited, and ClientGone raised; or
    SlowReader with what `slow` says.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.create_task(_disconnected(receive))
    ends: list[asyncio.Future[Any]] = [task, gone] if slow is None else [task, gone, slow]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        if slow is not None and slow.done():
            raise SlowReader(slow.result())
        raise ClientGone
    finally:
        await _cancelled(task)
        await _cancelled(gone)


async def _cancelled(task: "asyncio.Task[Any]") -> None:
    """Cancels a task that may have ended, and waits for its end."""
    if not task.done():
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
