"""The operations of the API port: a row for each, with the types of its request and its answers.

A route without a row fails a test (tests/unit/runtime/front/test_openapi.py).
"""

from dataclasses import dataclass

import msgspec
from pydantic import BaseModel

from graphpod_runtime.front.openai import reply
from graphpod_runtime.front.openai.request import ChatRequest, CompletionRequest, DetokenizeRequest, TokenizeRequest


class Version(msgspec.Struct, frozen=True):
    """GET /version."""

    version: str


class Load(msgspec.Struct, frozen=True):
    """GET /load: requests that are open."""

    server_load: int


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. `request`: its JSON body; `answer`: the JSON of a 200, None for an empty body, or a media
    type of text; `event`: the JSON of each event with `stream: true`. `open`: answers without a key.
    """

    summary: str
    answer: type[msgspec.Struct] | str | None
    request: type[BaseModel] | None = None
    event: type[msgspec.Struct] | None = None
    open: bool = False
    models: bool = False
    """Whether the model's name is part of the path or the body: 404 for another."""
    always: bool = False
    """Answers during warm-up and drain, too."""


OPERATIONS: dict[str, Operation] = {
    "POST /v1/chat/completions": Operation(
        "The assistant's next turn.", reply.ChatReply, ChatRequest, reply.ChatChunk, models=True
    ),
    "POST /v1/completions": Operation(
        "A continuation of each prompt.", reply.TextReply, CompletionRequest, reply.TextReply, models=True
    ),
    "GET /v1/models": Operation("The model that is served.", reply.ModelList),
    "GET /v1/models/{model}": Operation("One model.", reply.ModelCard, models=True),
    "POST /tokenize": Operation(
        "The tokens of a text or of a chat's prompt.", reply.Tokenized, TokenizeRequest, models=True
    ),
    "POST /detokenize": Operation("The text of tokens.", reply.Detokenized, DetokenizeRequest, models=True),
    "GET /openapi.json": Operation("This document.", "application/json"),
    "GET /health": Operation("200 while the server is Ready, otherwise 503.", None, open=True, always=True),
    "GET /ping": Operation("The same as /health.", None, open=True, always=True),
    "GET /version": Operation("The engine's version.", Version, always=True),
    "GET /load": Operation("Requests that are open.", Load, always=True),
    "GET /metrics": Operation("Metrics for Prometheus.", "text/plain", always=True),
}
"""By method and path, as ENDPOINTS and the front's own paths name them."""
