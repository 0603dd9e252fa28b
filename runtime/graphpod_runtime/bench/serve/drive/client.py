"""One request over HTTP, and when each piece of its answer came."""

import asyncio
import time
from typing import Any, NamedTuple

import msgspec

from graphpod_runtime.bench.serve.drive.connection import CannotConnect, Connections
from graphpod_runtime.bench.serve.drive.messages import Target
from graphpod_runtime.bench.serve.drive.sse import DONE, Events
from graphpod_runtime.bench.serve.figures.record import Outcome

LONGEST_MESSAGE = 300
"""Characters of a server's error that are kept."""
GOOD_ENDS = frozenset({"length", "stop", "tool_calls"})
"""Finish reasons of an answer that ended as it should."""


class _Delta(msgspec.Struct):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


_event = msgspec.json.Decoder(_Event).decode


class Answer:
    """What came of one request so far. `stamps` and `last` are time.monotonic(); `text` is the whole answer."""

    def __init__(self) -> None:
        self.sent = time.monotonic()
        self.end = self.sent
        self.stamps: list[float] = []
        self.last = self.sent
        self.outcome = Outcome.Completed
        self.error = self.message = ""
        self.usage: _Usage | None = None
        self._texts: list[str] = []
        self._finish: str | None = None
        self._done = False

    @property
    def text(self) -> str:
        """All pieces together."""
        return "".join(self._texts)

    @property
    def cached_tokens(self) -> int | None:
        """Of the prompt, where the server reports them."""
        return (
            self.usage.prompt_tokens_details.cached_tokens if self.usage and self.usage.prompt_tokens_details else None
        )

    def take(self, data: bytes, now: float) -> None:
        """One event's data, which came at `now`. Raises msgspec.DecodeError for what is no event of this API."""
        if data == DONE:
            self._done = True
            return
        event = _event(data)
        if event.error is not None:
            self.fail("error event", msgspec.json.encode(event.error).decode())
            return
        self.usage = event.usage or self.usage
        for choice in event.choices:
            piece = _piece(choice)
            self._finish = choice.finish_reason or self._finish
            if piece or (piece is not None and choice.finish_reason is None) or (self._finish and not self.stamps):
                self.stamps.append(now)
            if piece:
                self._texts.append(piece)
            if piece is not None or choice.finish_reason:
                self.last = now

    def close(self) -> None:
        """The stream has ended by itself: completed, if it says so."""
        if self.outcome is Outcome.Failed:
            return
        if self._finish is not None and self._finish not in GOOD_ENDS:
            self.fail(f"finish reason {self._finish}", "the server gave the request up")
        elif self._finish is None and not self._done:
            self.fail("stream cut", "the stream ended without a finish reason and without [DONE]")
        elif not self.stamps:
            self.fail("empty answer", "the stream has no piece of an answer")

    def fail(self, kind: str, message: str) -> None:
        """Ends as a failure of that kind."""
        self.outcome, self.error, self.message = Outcome.Failed, kind, message[:LONGEST_MESSAGE]


def _piece(choice: _Choice) -> str | None:
    """The new text. Empty for tokens that complete no character yet; None for an event that carries none, as the one
    that opens a chat's answer.
    """
    if choice.delta is None:
        return choice.text
    delta = choice.delta
    if text := delta.content or delta.reasoning_content or delta.reasoning:
        return text
    return delta.content if delta.role is None else None


class Ask(NamedTuple):
    """One request: its path below /v1, its body, and after how many pieces the client leaves."""

    path: str
    body: bytes
    cancel_after: int | None


class Client:
    """Asks one server, over `connections` to it."""

    def __init__(self, connections: Connections, target: Target) -> None:
        self._connections, self._target = connections, target

    async def ask(self, ask: Ask, answer: Answer) -> None:
        """Sends it and fills `answer` until the stream has ended, failed, or was left. Failures end in the answer."""
        status, events, refusal = 200, Events(), b""

        def take(found: int, data: bytes, now: float) -> bool:
            nonlocal status, refusal
            if (status := found) != 200:
                refusal += data
                return len(refusal) < LONGEST_MESSAGE
            for event in events.feed(data):
                answer.take(event, now)
            if answer.outcome is not Outcome.Failed and ask.cancel_after is not None:
                answer.outcome = Outcome.Cancelled if len(answer.stamps) >= ask.cancel_after else answer.outcome
            return answer.outcome is Outcome.Completed

        try:
            connection = await self._connections.take()
            done = connection.send(self._connections.request(ask.path, ask.body), take)
            try:
                async with asyncio.timeout_at(asyncio.get_running_loop().time() + self._target.timeout):
                    await done
            except BaseException:
                connection.close()
                raise
            self._connections.give_back(connection)
            if status != 200:
                answer.fail(f"HTTP {status}", refusal.decode(errors="replace"))
            elif answer.outcome is not Outcome.Cancelled:
                answer.close()
        except TimeoutError:
            answer.fail("timeout", f"no end within {self._target.timeout:g} s")
        except CannotConnect as error:
            answer.fail("cannot connect", str(error))
        except OSError as error:
            answer.fail("connection lost", str(error))
        except msgspec.DecodeError as error:
            answer.fail("not an OpenAI stream", str(error))
        answer.end = time.monotonic()
