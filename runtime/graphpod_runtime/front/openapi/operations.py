"""The operations of the API port: a row for each, with the types of its request and its answers.

A route without a row fails a test (tests/unit/runtime/front/test_openapi.py).
"""

from dataclasses import dataclass

import msgspec
from pydantic import BaseModel

from graphpod_runtime.front.anthropic import reply as anthropic
from graphpod_runtime.front.anthropic.request import CountRequest, MessagesRequest
from graphpod_runtime.front.openai import reply
from graphpod_runtime.front.openai.embeddings.reply import EmbeddingReply, RerankReply, ScoreReply
from graphpod_runtime.front.openai.embeddings.request import EmbeddingRequest, RerankRequest, ScoreRequest
from graphpod_runtime.front.openai.invocations import Invocation
from graphpod_runtime.front.openai.request import ChatRequest, CompletionRequest, DetokenizeRequest, TokenizeRequest
from graphpod_runtime.front.openai.responses import events
from graphpod_runtime.front.openai.responses.reply import Deleted, InputItems, Response
from graphpod_runtime.front.openai.responses.request import ResponsesRequest
from graphpod_runtime.front.requests.errors import Code


class Version(msgspec.Struct, frozen=True):
    """GET /version."""

    version: str


class Load(msgspec.Struct, frozen=True):
    """GET /load: requests that are open."""

    server_load: int


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. `request`: its JSON body; `answer`: the JSON of a 200 (of several: one of them), None for
    an empty body, or a media type of text; `events`: the JSON of each event with `stream: true`.
    """

    summary: str
    answer: tuple[type[msgspec.Struct], ...] | type[msgspec.Struct] | str | None
    request: type[BaseModel] | None = None
    events: tuple[type[msgspec.Struct], ...] = ()
    codes: tuple[Code, ...] = ()
    """Of errors, besides those that every operation of its kind has."""
    query: tuple[str, ...] = ()
    """Names of its query parameters."""
    open: bool = False
    """Whether it answers without a key."""
    always: bool = False
    """Whether it answers during warm-up and drain, too."""


MODEL: tuple[Code, ...] = ("model_not_found",)
STORED: tuple[Code, ...] = ("response_not_found",)
RESPONSE_EVENTS = (
    events.ResponseEvent, events.ItemEvent, events.PartEvent, events.TextDelta, events.TextDone, events.ReasoningDelta,
    events.ReasoningDone, events.ArgumentsDelta, events.ArgumentsDone,
)  # fmt: skip
MESSAGE_EVENTS = (
    anthropic.MessageStart, anthropic.BlockStart, anthropic.BlockDelta, anthropic.BlockStop, anthropic.MessageDelta,
    anthropic.MessageStop, anthropic.Ping,
)  # fmt: skip

OPERATIONS: dict[str, Operation] = {
    "POST /v1/chat/completions": Operation(
        "The assistant's next turn.", reply.ChatReply, ChatRequest, (reply.ChatChunk,), MODEL
    ),
    "POST /v1/completions": Operation(
        "A continuation of each prompt.", reply.TextReply, CompletionRequest, (reply.TextReply,), MODEL
    ),
    "GET /v1/models": Operation("The model that is served.", reply.ModelList),
    "GET /v1/models/{model}": Operation("One model.", reply.ModelCard, codes=MODEL),
    "POST /v1/responses": Operation(
        "A response of the Responses API.", Response, ResponsesRequest, RESPONSE_EVENTS,
        (*MODEL, "previous_response_not_found"),
    ),
    "GET /v1/responses/{id}": Operation(
        "A stored response.", Response, codes=(*STORED, "unsupported_parameter"), query=("stream",)
    ),
    "DELETE /v1/responses/{id}": Operation("Forget a response; cancel it if it runs.", Deleted, codes=STORED),
    "GET /v1/responses/{id}/input_items": Operation(
        "The input of a stored response.", InputItems, codes=(*STORED, "invalid_value"),
        query=("order", "limit", "after"),
    ),
    "POST /v1/responses/{id}/cancel": Operation(
        "Cancel a response in the background.", Response, codes=(*STORED, "invalid_value")
    ),
    "POST /v1/messages": Operation(
        "The assistant's next turn, in Anthropic's form.", anthropic.Message, MessagesRequest, MESSAGE_EVENTS, MODEL
    ),
    "POST /v1/messages/count_tokens": Operation(
        "The tokens of a message's prompt.", anthropic.TokensCount, CountRequest, codes=MODEL
    ),
    "POST /v1/embeddings": Operation("A vector for each input.", EmbeddingReply, EmbeddingRequest, codes=MODEL),
    "POST /v1/score": Operation("How close pairs of texts are.", ScoreReply, ScoreRequest, codes=MODEL),
    "POST /v1/rerank": Operation("Documents by their closeness to a text.", RerankReply, RerankRequest, codes=MODEL),
    "POST /invocations": Operation(
        "A chat or a completion, by the body's fields.", (reply.ChatReply, reply.TextReply), Invocation,
        (reply.ChatChunk, reply.TextReply), MODEL,
    ),
    "POST /tokenize": Operation(
        "The tokens of a text or of a chat's prompt.", reply.Tokenized, TokenizeRequest, codes=MODEL
    ),
    "POST /detokenize": Operation("The text of tokens.", reply.Detokenized, DetokenizeRequest, codes=MODEL),
    "GET /openapi.json": Operation("This document.", "application/json"),
    "GET /health": Operation("200 while the server is Ready, otherwise 503.", None, open=True, always=True),
    "GET /ping": Operation("The same as /health.", None, open=True, always=True),
    "GET /version": Operation("The engine's version.", Version, always=True),
    "GET /load": Operation("Requests that are open.", Load, always=True),
    "GET /metrics": Operation("Metrics for Prometheus.", "text/plain", always=True),
}  # fmt: skip
"""By method and path, as ENDPOINTS and the front's own paths name them."""
