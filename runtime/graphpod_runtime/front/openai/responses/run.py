"""One response while it runs: its narrator, what its turn is read with, and what is stored of it."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from graphpod_runtime.front.openai.responses.events import Event, encoded
from graphpod_runtime.front.openai.responses.items import answered
from graphpod_runtime.front.openai.responses.narrator import Narrator
from graphpod_runtime.front.openai.responses.reply import RawTokens, Response, ResponseUsage
from graphpod_runtime.front.openai.responses.store import Kept, ResponseStore
from graphpod_runtime.front.openai.stream import closable
from graphpod_runtime.front.openai.turn.reader import TurnReader
from graphpod_runtime.front.requests.errors import ApiError, our_mistake
from graphpod_runtime.front.requests.generation import Generation, Piece

log = logging.getLogger("graphpod.front")

_encoder = msgspec.json.Encoder()

GOING = ("queued", "in_progress")


@dataclass(slots=True)
class Run:
    """The way of one response from its first piece to the store. It satisfies Events, for a stream."""

    narrator: Narrator
    reader: TurnReader
    generation: Generation
    usage: Callable[[], ResponseUsage]
    items: bytes
    """The input items, a list as JSON; empty where the response is not stored."""
    turns: bytes
    """The conversation up to the answer, likewise."""
    store: ResponseStore | None
    """None for a response that is not stored."""
    background: bool = False
    raw: list[Piece] | None = None
    """The answer as it came, where it is sent as tokens, too."""
    task: "asyncio.Task[None] | None" = field(default=None, init=False)
    """What runs it where no connection does."""

    @property
    def response(self) -> Response:
        """As it is now."""
        return self.narrator.response

    def begin(self) -> bytes:
        """The first events."""
        return encoded(self.narrator.created())

    def pieces(self, together: list[Piece]) -> bytes:
        """The events of pieces that came together."""
        return encoded([event for piece in together for event in self._take(piece)])

    def end(self) -> bytes:
        """The last event of a response that completed, or that its token limit ended."""
        events = self._ended()
        self.settle()
        return encoded(events)

    def failed(self, error: ApiError) -> bytes:
        """The last event of one that failed."""
        events = self.narrator.failed(error)
        self.settle()
        return encoded(events)

    def whole(self, pieces: list[Piece]) -> Response:
        """The response of all pieces."""
        for piece in pieces:
            self._take(piece)
        self._ended()
        return self.response

    async def alone(self) -> None:
        """Runs without a connection, to the end."""
        self.narrator.created()
        try:
            async with contextlib.aclosing(closable(self.generation.pieces())) as pieces:
                async for together in pieces:
                    self.pieces(together)
            self.end()
        except ApiError as error:
            log.info("response %s failed: code=%s %s", self.response.id, error.code, error.message)
            self.failed(error)
        except Exception as error:
            log.exception("response %s failed", self.response.id)
            self.failed(our_mistake(error))

    def _take(self, piece: Piece) -> list[Event]:
        if self.raw is not None:
            self.raw.append(piece)
        return self.narrator.take(self.reader.read(piece))

    def _ended(self) -> list[Event]:
        if self.raw is not None:
            text, ids = "".join(piece.text for piece in self.raw), [id for piece in self.raw for id in piece.ids]
            self.narrator.response = replace(self.response, output_messages=[RawTokens(text, ids)])
        return self.narrator.ended(self.usage())

    def settle(self) -> None:
        """The response has ended: the store keeps it as it is. What did not come to an end was cancelled."""
        if self.response.status in GOING:
            self.narrator.cancelled()
        store, self.store = self.store, None
        if store is not None:
            store.end(self.response.id, self.so_far())

    def cancel(self) -> None:
        """Ends it as cancelled."""
        self.settle()
        if self.task is not None:
            self.task.cancel()

    def so_far(self) -> Kept:
        """What a store keeps of it."""
        response = self.response
        turns = self.turns
        if answer := answered(response.output):
            turns = turns[:-1] + (b"," if len(turns) > 2 else b"") + _encoder.encode(answer)[1:]
        return Kept(_encoder.encode(response), self.items, turns, response.status, self.background)
