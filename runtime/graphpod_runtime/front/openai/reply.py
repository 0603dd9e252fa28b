"""Answers of the OpenAI API, whole or as events: msgspec, because they are ours."""

import msgspec

from graphpod_runtime.front.openai.sampling.prompt_logprobs import PromptLogprobs


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """`cached_tokens` of the prompt were in the prefix cache."""

    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct, frozen=True):
    """`reasoning_tokens` of the answer are reasoning."""

    reasoning_tokens: int


class Usage(msgspec.Struct, frozen=True):
    """Tokens of a request; the token that stopped it counts."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails | msgspec.UnsetType = msgspec.UNSET


class FunctionCalled(msgspec.Struct, frozen=True):
    """A function and its arguments: JSON, in a string."""

    name: str
    arguments: str


class ToolCalled(msgspec.Struct, frozen=True):
    """A call that the client shall make."""

    id: str
    function: FunctionCalled
    type: str = "function"


class ChatMessage(msgspec.Struct, frozen=True):
    """The assistant's turn. `reasoning` and `reasoning_content` are one text by two names."""

    content: str | None
    role: str = "assistant"
    reasoning: str | msgspec.UnsetType = msgspec.UNSET
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[ToolCalled] | msgspec.UnsetType = msgspec.UNSET


class TokenLogprob(msgspec.Struct, frozen=True):
    """One token. `bytes` is null where the tokenizer cannot tell them."""

    token: str
    logprob: float
    bytes: list[int] | None


class ChatToken(msgspec.Struct, frozen=True):
    """One token of an answer, and the likeliest ones where it stands."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TokenLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True):
    """Of an answer, or of a piece of one."""

    content: list[ChatToken]
    refusal: None = None


class TextLogprobs(msgspec.Struct, frozen=True):
    """Of an answer, or of a piece of one: four lists, an entry a token. Nothing precedes the first token of a prompt:
    its entries are null. `text_offset` counts characters."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class ChatChoice(msgspec.Struct, frozen=True):
    """One answer."""

    index: int
    message: ChatMessage
    finish_reason: str
    logprobs: ChatLogprobs | None = None
    token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET


class ChatReply(msgspec.Struct, frozen=True):
    """The whole answer."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    prompt_logprobs: PromptLogprobs | None = None
    object: str = "chat.completion"


class FunctionDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    """The name, in a call's first delta, and more of its arguments."""

    name: str | None = None
    arguments: str | None = None


class ToolCallDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is new of call `index`; its first delta has `id`, `type` and the function's name."""

    index: int
    id: str | None = None
    type: str | None = None
    function: FunctionDelta | None = None


class ChatDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is new in a streamed answer."""

    role: str | None = None
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallDelta] | None = None


class ChatChunkChoice(msgspec.Struct, frozen=True):
    """A piece of one answer."""

    index: int
    delta: ChatDelta
    finish_reason: str | None = None
    logprobs: ChatLogprobs | None = None
    token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET


class ChatChunk(msgspec.Struct, frozen=True):
    """One event of a stream. `usage` is null but in the last when asked for, absent otherwise; the first event may have
    the prompt's tokens.
    """

    id: str
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    prompt_token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    object: str = "chat.completion.chunk"


class TextChoice(msgspec.Struct, frozen=True):
    """One answer to one prompt, or a piece of it."""

    index: int
    text: str
    finish_reason: str | None = None
    logprobs: TextLogprobs | None = None
    token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    prompt_token_ids: list[int] | msgspec.UnsetType | None = msgspec.UNSET
    prompt_logprobs: PromptLogprobs | msgspec.UnsetType | None = msgspec.UNSET
    """Both are null where they were not asked for, absent in events."""


class TextReply(msgspec.Struct, frozen=True):
    """The whole answer, or one event of a stream."""

    id: str
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    object: str = "text_completion"


class Tokenized(msgspec.Struct, frozen=True):
    """POST /tokenize. `token_strs` are the tokens as the vocabulary spells them, where they were asked for."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class Detokenized(msgspec.Struct, frozen=True):
    """POST /detokenize."""

    prompt: str


class ModelCard(msgspec.Struct, frozen=True):
    """A model that can be asked for."""

    id: str
    created: int
    max_model_len: int
    owned_by: str = "graphpod"
    object: str = "model"


class ModelList(msgspec.Struct, frozen=True):
    """GET /v1/models."""

    data: list[ModelCard]
    object: str = "list"
