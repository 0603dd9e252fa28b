"""POST /v1/completions."""

import time
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from graphpod_runtime.front.generation import Piece
from graphpod_runtime.front.openai.errors import invalid
from graphpod_runtime.front.openai.protocol import CompletionRequest, TextChoice, TextReply
from graphpod_runtime.front.openai.service import Service, new_id, usage
from graphpod_runtime.front.openai.stream import answer, event_stream

DEFAULT_MAX_TOKENS = 16
"""OpenAI's for this endpoint."""


async def completions(service: Service, request: Request, body: CompletionRequest) -> Response:
    """A continuation of each prompt, whole or as a stream. ApiError says what is wrong with the request."""
    service.check(body)
    prompts = await service.tokenized(_prompts, service, body)
    if not prompts:
        raise invalid("prompt is an empty list; it needs at least one prompt", param="prompt")
    generation = service.generation(body, prompts, body.max_tokens or DEFAULT_MAX_TOKENS, param="prompt")
    id, created = new_id("cmpl"), int(time.time())
    if not body.stream:

        def reply(pieces: list[Piece]) -> TextReply:
            choices = []
            for index in range(len(prompts)):
                own = [piece for piece in pieces if piece.index == index]
                choices.append(TextChoice(index, "".join(piece.text for piece in own), own[-1].finish))
            return TextReply(id, created, service.model, choices, usage(generation))

        return await answer(request.receive, generation, reply)

    none_yet = None if body.include_usage else msgspec.UNSET

    def encode(piece: Piece) -> TextReply:
        choice = TextChoice(piece.index, piece.text, piece.finish)
        return TextReply(id, created, service.model, [choice], none_yet)

    def tail() -> list[TextReply]:
        return [TextReply(id, created, service.model, [], usage(generation))] if body.include_usage else []

    return await event_stream(request.receive, generation, encode, [], tail)


def _prompts(service: Service, body: CompletionRequest) -> list[list[int]]:
    """Every prompt as token ids."""
    match body.prompt:
        case str() as text:
            entries: list[Any] = [text]
        case [int(), *_] as ids:
            entries = [ids]
        case several:
            entries = list(several)
    return [service.tokenizer.encode(entry) if isinstance(entry, str) else entry for entry in entries]
