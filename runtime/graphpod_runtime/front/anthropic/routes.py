"""The routes of /v1/messages: the one file that knows HTTP and the service."""

import time
from contextlib import ExitStack
from dataclasses import dataclass

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from graphpod_runtime.front.anthropic.narrator import Narrator
from graphpod_runtime.front.anthropic.reply import Message, OutputTokensDetails, TokensCount, Usage, encoded
from graphpod_runtime.front.anthropic.request import RENAMED, CountRequest, MessagesRequest, PromptRequest
from graphpod_runtime.front.metrics.exemplars import names_of
from graphpod_runtime.front.openai.chat import answered_prompt, chat_generation
from graphpod_runtime.front.openai.chunks import event
from graphpod_runtime.front.openai.parse import Parser, size_of, valid
from graphpod_runtime.front.openai.request import ChatRequest
from graphpod_runtime.front.openai.service import Service
from graphpod_runtime.front.openai.stream import EventStream, answer, json_response
from graphpod_runtime.front.openai.turn.reader import TurnReader
from graphpod_runtime.front.openai.unbuilt_fields import header_of
from graphpod_runtime.front.request_id import IGNORED, answer_id
from graphpod_runtime.front.requests.error_shapes import anthropic_error
from graphpod_runtime.front.requests.errors import ApiError
from graphpod_runtime.front.requests.generation import Generation, Piece
from graphpod_runtime.front.requests.renamed_fields import renamed_fields
from graphpod_runtime.front.server.application import Application

ENDPOINTS = ("POST /v1/messages", "POST /v1/messages/count_tokens")


def add_routes(app: Application, service: Service, parser: Parser) -> None:
    """Adds ENDPOINTS to the application."""

    @app.busy_post("/v1/messages")
    async def messages(request: Request) -> Response:
        return await create(service, parser, request, await parser.read(request, MessagesRequest))

    @app.busy_post("/v1/messages/count_tokens")
    async def tokens_of_messages(request: Request) -> Response:
        return await count_tokens(service, parser, request, await parser.read(request, CountRequest))


async def create(service: Service, parser: Parser, request: Request, body: MessagesRequest) -> Response:
    """The assistant's next turn, whole or as a stream. ApiError says what is wrong with the request."""
    received = time.perf_counter()
    with ExitStack() as until:
        chat = await parser.apart(
            size_of(request), lambda: _translated(service, request, body, body.max_tokens, body.stop_sequences)
        )
        with renamed_fields(RENAMED):
            service.admit(chat, 1, until)
            generation = await chat_generation(service, chat, received, until)
        generation.begin(until)
        id = answer_id(request.scope, "msg", "_")
        generation.names = names_of(id, request.headers.get("traceparent"))
        usage = Usage(generation.prompt_tokens, 0)
        narrator = Narrator(Message(id, service.model, [], usage))
        answering = MessageEvents(service, generation, narrator, TurnReader(generation))
        if body.stream:
            return EventStream(generation, answering, until.pop_all())
        return await answer(request.receive, generation, answering.whole)


async def count_tokens(service: Service, parser: Parser, request: Request, body: CountRequest) -> Response:
    """The tokens of the prompt. ApiError 400 for one that the context does not hold."""
    chat = await parser.apart(size_of(request), lambda: _translated(service, request, body, None, None))
    with renamed_fields(RENAMED):
        chat.take_ignored()
        ids = await answered_prompt(service, chat, None)
    return json_response(TokensCount(len(ids)))


def _translated(
    service: Service, request: Request, body: PromptRequest, max_tokens: int | None, stops: list[str] | None
) -> ChatRequest:
    """The chat that answers; names the fields that have no effect. `body` has no turns afterwards: an answer may take
    minutes, and texts are megabytes. ApiError as the checks of the model, the fields and the chat.
    """
    service.check_model(body.model)
    ignored, switch = body.take_ignored(), service.reasoning_switch
    body.take_without_effect(switch, ignored)
    request.scope[IGNORED] = header_of(ignored)
    as_chat = body.chat(switch, max_tokens, stops)
    with renamed_fields(RENAMED):
        chat = valid(as_chat, ChatRequest)
    body.messages, body.system = [], None
    return chat


@dataclass(slots=True)
class MessageEvents:
    """The way of one message from its pieces. It satisfies Events, for a stream."""

    service: Service
    generation: Generation
    narrator: Narrator
    reader: TurnReader

    def begin(self) -> bytes:
        """The first events."""
        return encoded(self.narrator.begun())

    def pieces(self, together: list[Piece]) -> bytes:
        """The events of pieces that came together."""
        return encoded(
            [event for piece in together for event in self.narrator.take(self.reader.read(piece), piece.stop)]
        )

    def end(self) -> bytes:
        """The last events of a message that is complete."""
        return encoded(self.narrator.ended(self.usage()))

    def failed(self, error: ApiError) -> bytes:
        """The last event of one that is not."""
        return event(anthropic_error(error), b"error")

    def whole(self, pieces: list[Piece]) -> Message:
        """The message of all pieces."""
        for piece in pieces:
            self.narrator.take(self.reader.read(piece), piece.stop)
        self.narrator.ended(self.usage())
        return self.narrator.message

    def usage(self) -> Usage:
        """The token counts of a generation that has ended."""
        read, written = self.generation.cached_tokens, self.service.cache_written(self.generation)
        fresh = self.generation.prompt_tokens - read - written
        thought = self.generation.reasoning_tokens
        details = UNSET if thought is None else OutputTokensDetails(thought)
        return Usage(fresh, self.generation.completion_tokens, written, read, details)
