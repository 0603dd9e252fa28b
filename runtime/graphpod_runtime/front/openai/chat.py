"""POST /v1/chat/completions."""

import time
from contextlib import ExitStack
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from graphpod_runtime.front.openai.chunks import Chunks
from graphpod_runtime.front.openai.logprobs import chat_logprobs
from graphpod_runtime.front.openai.messages import Conversation
from graphpod_runtime.front.openai.reply import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprobs,
    ChatReply,
)
from graphpod_runtime.front.openai.request import ChatRequest
from graphpod_runtime.front.openai.service import Service, usage, usage_so_far
from graphpod_runtime.front.openai.stream import EventStream, answer
from graphpod_runtime.front.openai.turn.chat_shape import delta_of, message_of
from graphpod_runtime.front.openai.turn.reader import TextAlone, TurnReader
from graphpod_runtime.front.openai.unbuilt import header_of
from graphpod_runtime.front.request_id import IGNORED, answer_id
from graphpod_runtime.front.requests.errors import invalid
from graphpod_runtime.front.requests.exemplars import names_of
from graphpod_runtime.front.requests.generation import Generation, Piece
from graphpod_runtime.front.text.chat_template import TemplateError


async def chat(service: Service, request: Request, body: ChatRequest) -> Response:
    """One assistant's turn, whole or as a stream. ApiError says what is wrong with the request."""
    received = time.perf_counter()
    with ExitStack() as until:
        request.scope[IGNORED] = header_of(service.admit(body, 1, until))
        return await _answer(service, request, body, received, until)


async def _answer(service: Service, request: Request, body: ChatRequest, received: float, until: ExitStack) -> Response:
    alternatives = body.alternatives
    generation = await chat_generation(service, body, received, until)
    [prompt] = generation.prompts
    id, created = answer_id(request.scope, "chatcmpl"), int(time.time())
    generation.names = names_of(id, request.headers.get("traceparent"))

    def logprobs(*pieces: Piece) -> ChatLogprobs | None:
        said = (one for piece in pieces for one in piece.said)
        return None if alternatives is None else chat_logprobs(service.tokenizer, said)

    def token_ids(*pieces: Piece) -> list[int] | UnsetType:
        return [id for piece in pieces for id in piece.ids] if body.return_token_ids else UNSET

    prompt_ids = prompt if body.return_token_ids else UNSET
    reader = TurnReader(TextAlone())
    if not body.stream:

        def reply(pieces: list[Piece]) -> ChatReply:
            turns = [reader.read(piece) for piece in pieces]
            message = message_of(part for turn in turns for part in turn.parts)
            choice = ChatChoice(0, message, str(turns[-1].finish), logprobs(*pieces), token_ids(*pieces))
            return ChatReply(id, created, service.model, [choice], usage(generation), prompt_ids)

        return await answer(request.receive, generation, reply)

    so_far = usage_so_far(body, generation)

    def encode(piece: Piece) -> ChatChunk | None:
        turn = reader.read(piece)
        if not (turn.parts or turn.finish or turn.said or turn.ids):
            return None
        choice = ChatChunkChoice(0, delta_of(turn.parts), turn.finish, logprobs(piece), token_ids(piece))
        return ChatChunk(id, created, service.model, [choice], so_far())

    def tail() -> list[ChatChunk]:
        return [ChatChunk(id, created, service.model, [], usage(generation))] if body.include_usage else []

    first = ChatChunkChoice(0, ChatDelta(role="assistant", content=""))
    head: list[Struct] = [ChatChunk(id, created, service.model, [first], so_far(), prompt_ids)]
    return EventStream(generation, Chunks(encode, head, tail, varies=body.varies), until.pop_all())


async def chat_generation(service: Service, body: ChatRequest, received: float, until: ExitStack) -> Generation:
    """The work of an admitted request. Every API that has turns comes here. ApiError says what is wrong with it."""
    prompt = await chat_prompt(service, body)
    service.admit_tokens([prompt], until)
    max_tokens = body.max_completion_tokens or body.max_tokens
    return service.generation(
        body, [prompt], max_tokens, param="messages", received=received, logprobs=body.alternatives,
        grammar=await service.grammar(body),
    )  # fmt: skip


async def chat_prompt(service: Service, body: Conversation) -> list[int]:
    """The conversation as token ids. `body` has no messages afterwards: an answer may take minutes, and they are
    megabytes.
    """
    variables, ending = body.variables, body.ending
    messages = [message.plain(at) for at, message in enumerate(body.messages)]
    body.messages.clear()
    try:
        return await service.tokenized(
            lambda limit: service.tokenizer.encode_chat(messages, variables, limit, ending),
            _characters(messages),
            "messages",
        )
    except TemplateError as error:
        raise invalid(str(error), param=error.param) from error


def _characters(messages: list[dict[str, Any]]) -> int:
    """About as many as the conversation's text will have."""
    return sum(len(turn["content"] or "") + len(str(turn.get("tool_calls", ""))) for turn in messages)
