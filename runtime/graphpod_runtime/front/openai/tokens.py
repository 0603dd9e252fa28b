"""POST /tokenize and /detokenize, in vLLM's form."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from graphpod_runtime.front.openai.chat import chat_prompt
from graphpod_runtime.front.openai.reply import Detokenized, Tokenized
from graphpod_runtime.front.openai.request import DetokenizeRequest, TokenizeRequest
from graphpod_runtime.front.openai.service import CHARACTERS_A_TOKEN, Service
from graphpod_runtime.front.openai.stream import json_response
from graphpod_runtime.front.openai.unbuilt_fields import header_of
from graphpod_runtime.front.request_id import IGNORED
from graphpod_runtime.front.requests.errors import invalid
from graphpod_runtime.wire.bounds import outside


async def tokenize(service: Service, request: Request, body: TokenizeRequest) -> Response:
    """The tokens of a text or of a chat's prompt. ApiError 400 for one that the context does not hold."""
    if body.model is not None:
        service.check_model(body.model)
    request.scope[IGNORED] = header_of(body.take_ignored())
    if body.messages:
        ids = await chat_prompt(service, body)
    else:
        text, specials = body.prompt or "", body.add_special_tokens is not False
        ids = await service.tokenized(
            lambda limit: service.tokenizer.encode(text, limit, specials=specials), len(text), "prompt"
        )
    spelling, context = service.tokenizer.spelling, service.status.context_tokens
    if not body.return_token_strs:
        return json_response(Tokenized(len(ids), context, ids))
    # A context's tokens take too long for the event loop.
    return await asyncio.to_thread(lambda: json_response(Tokenized(len(ids), context, ids, list(map(spelling, ids)))))


async def detokenize(service: Service, request: Request, body: DetokenizeRequest) -> Response:
    """The text of tokens, special ones included. ApiError 400 for more than the context holds, and for one that the
    model does not have.
    """
    if body.model is not None:
        service.check_model(body.model)
    request.scope[IGNORED] = header_of(body.take_ignored())
    limit = service.status.context_tokens
    if len(body.tokens) > limit:
        raise invalid(f"tokens holds {len(body.tokens)} token ids; at most {limit} are read", param="tokens")
    if (message := outside(body.tokens, service.status.vocabulary)) is not None:
        raise invalid(f"tokens: {message}", param="tokens")
    text = await service.tokenized(
        lambda _: service.tokenizer.spelled_out(body.tokens), CHARACTERS_A_TOKEN * len(body.tokens), "tokens"
    )
    return json_response(Detokenized(text))
