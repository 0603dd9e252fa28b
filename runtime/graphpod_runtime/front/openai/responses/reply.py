"""A response and its items, as OpenAI writes them."""

from typing import Any

import msgspec

from graphpod_runtime.front.openai.reply import TokenLogprob


class TextLogprob(msgspec.Struct, frozen=True):
    """One token of a text, and the likeliest ones where it stands."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TokenLogprob]


class OutputText(msgspec.Struct, frozen=True, tag_field="type", tag="output_text"):
    """The text of a message."""

    text: str
    logprobs: list[TextLogprob]
    annotations: list[Any] = []


class ReasoningText(msgspec.Struct, frozen=True, tag_field="type", tag="reasoning_text"):
    """What the model thought."""

    text: str


class OutputMessage(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    """The assistant's words."""

    id: str
    status: str
    content: list[OutputText]
    role: str = "assistant"


class ReasoningItem(msgspec.Struct, frozen=True, tag_field="type", tag="reasoning"):
    """The assistant's thoughts; `summary` is empty, because they are sent in full."""

    id: str
    status: str
    content: list[ReasoningText]
    summary: list[Any] = []
    encrypted_content: None = None


class FunctionCallItem(msgspec.Struct, frozen=True, tag_field="type", tag="function_call"):
    """A call of a function; `arguments` is JSON as the model wrote it."""

    id: str
    status: str
    call_id: str
    name: str
    arguments: str


OutputItem = OutputMessage | ReasoningItem | FunctionCallItem


class InputTokensDetails(msgspec.Struct, frozen=True):
    """Of the prompt's tokens, those that the prefix cache had, and those that it took."""

    cached_tokens: int
    cache_write_tokens: int


class OutputTokensDetails(msgspec.Struct, frozen=True):
    """Of the answer's tokens, those of reasoning."""

    reasoning_tokens: int


class ResponseUsage(msgspec.Struct, frozen=True):
    """Tokens of one response, without those of the responses before it."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseError(msgspec.Struct, frozen=True):
    """Why a response failed."""

    code: str
    message: str


class IncompleteDetails(msgspec.Struct, frozen=True):
    """Why a response is incomplete."""

    reason: str


class RawTokens(msgspec.Struct, frozen=True):
    """A prompt or an answer as the engine has it, in vLLM's form."""

    message: str
    tokens: list[int]
    type: str = "raw_message_tokens"


class Response(msgspec.Struct, frozen=True):
    """One response. What the request set is repeated; null stands for what it left out."""

    id: str
    created_at: int
    status: str
    model: str
    background: bool
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: dict[str, Any] | None
    safety_identifier: str | None
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: Any
    tools: list[Any]
    top_logprobs: int
    top_p: float
    truncation: str
    user: str | None
    output: list[OutputItem] = []
    usage: ResponseUsage | None = None
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    completed_at: int | None = None
    max_tool_calls: None = None
    service_tier: str = "default"
    input_messages: list[RawTokens] | msgspec.UnsetType = msgspec.UNSET
    output_messages: list[RawTokens] | msgspec.UnsetType = msgspec.UNSET
    object: str = "response"


class Deleted(msgspec.Struct, frozen=True):
    """DELETE /v1/responses/{id}."""

    id: str
    deleted: bool = True
    object: str = "response"


class InputItems(msgspec.Struct, frozen=True):
    """GET /v1/responses/{id}/input_items."""

    data: list[Any]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: str = "list"
