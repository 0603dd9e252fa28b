"""Requests (pydantic: they come from outside) and answers (msgspec: they are ours) of the OpenAI API."""

import reprlib
from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from graphpod_runtime.front.openai.errors import invalid

HARMLESS = frozenset(
    {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"}
)
"""Fields that OpenAI documents and that cannot change the answer: accepted, unused."""

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "suffix": ("",),
    "prompt_logprobs": (),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "min_tokens": (0,),
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    "response_format": ({"type": "text"},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": (),
    "verbosity": (),
    "web_search_options": (),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "skip_special_tokens": (True,),
    "truncate_prompt_tokens": (),
}
"""Known fields that are not built, with the values that mean "not used" (null always does)."""


def _is_neutral(value: Any, neutral: tuple[Any, ...]) -> bool:
    """0 and False are two things here: `logprobs: 0` asks for log-probabilities, `logprobs: false` does not."""
    return any(value == word and isinstance(value, bool) == isinstance(word, bool) for word in neutral)


MAX_STOPS = 16
MAX_ALTERNATIVES = 20
"""Tokens named beside each token of an answer."""


def _whole(text: str) -> str:
    """JSON can spell half a surrogate pair, which no tokenizer takes; UnicodeEncodeError says where it stands."""
    text.encode()
    return text


Text = Annotated[str, AfterValidator(_whole)]
StopString = Annotated[str, Field(min_length=1), AfterValidator(_whole)]
# A list fails at its first wrong item: an error for each of a million would cost gigabytes.
Tokens = Annotated[list[Annotated[int, Field(strict=True)]], Field(fail_fast=True)]


class StreamOptions(BaseModel):
    """What a stream carries besides text."""

    model_config = ConfigDict(extra="forbid")

    include_usage: bool = False


class GenerationRequest(BaseModel):
    """The fields that both kinds of request share. Null means the default."""

    model_config = ConfigDict(extra="allow")

    model: str
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1, lt=2**31, strict=True)
    """0 and -1: no cut, as vLLM has it."""
    min_p: float | None = Field(None, ge=0, le=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: StopString | Annotated[list[StopString], Field(max_length=MAX_STOPS)] | None = None
    stop_token_ids: Annotated[Tokens, Field(max_length=MAX_STOPS)] | None = None
    max_tokens: int | None = Field(None, ge=1)
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    ignore_eos: bool | None = False

    def refuse_unbuilt(self) -> None:
        """ApiError 400 naming a field that would change the answer and is not built, or that nobody knows."""
        for name, value in (self.model_extra or {}).items():
            if name in HARMLESS or value is None:
                continue
            if name not in NEUTRAL:
                raise invalid(f"Unrecognized request argument supplied: {name}", param=name, code="unknown_parameter")
            if not _is_neutral(value, NEUTRAL[name]):
                raise invalid(
                    f"{name}={reprlib.repr(value)} is not supported by this engine; leave the field out",
                    param=name,
                    code="unsupported_parameter",
                )
        if self.stream_options is not None and not self.stream:
            raise invalid("stream_options is only allowed when stream is true", param="stream_options")

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with its token counts."""
        return self.stream_options is not None and self.stream_options.include_usage


class TextPart(BaseModel):
    """The one kind of content part that a text model reads."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["text"]
    text: Text


class Message(BaseModel):
    """One turn of a conversation."""

    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant"]
    content: Text | Annotated[list[TextPart], Field(fail_fast=True)]
    name: Text | None = None

    def plain(self, at: int) -> dict[str, str]:
        """What a chat template reads. ApiError 400 for a field it would silently drop; `at` is the turn's index."""
        for name, value in (self.model_extra or {}).items():
            if value not in (None, []):
                raise invalid(
                    f"messages[{at}].{name} is not supported by this engine; leave the field out",
                    param=f"messages[{at}].{name}",
                    code="unsupported_parameter",
                )
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        # OpenAI renamed the system role for its newer models; templates know the old word.
        turn = {"role": "system" if self.role == "developer" else self.role, "content": text}
        return turn if self.name is None else turn | {"name": self.name}


class ChatRequest(GenerationRequest):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(fail_fast=True)] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: Annotated[bool, Field(strict=True)] | None = False
    top_logprobs: int | None = Field(None, ge=0, le=MAX_ALTERNATIVES, strict=True)

    @property
    def alternatives(self) -> int | None:
        """Alternatives beside each token; None: no log-probabilities. ApiError 400 for the one field without the
        other, as OpenAI has it.
        """
        if not self.logprobs and self.top_logprobs:
            raise invalid("top_logprobs is only allowed when logprobs is true", param="top_logprobs")
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionRequest(GenerationRequest):
    """POST /v1/completions. A prompt is text or token ids, alone or in a list; each gives one choice."""

    prompt: (
        Text | Annotated[list[Text], Field(fail_fast=True)] | Tokens | Annotated[list[Tokens], Field(fail_fast=True)]
    )
    echo: Annotated[bool, Field(strict=True)] | None = False
    logprobs: int | None = Field(None, ge=0, le=MAX_ALTERNATIVES, strict=True)

    @field_validator("logprobs", mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:
        """0 and false are two things here: 0 asks for log-probabilities without alternatives, false for none."""
        return None if value is False else value

    @property
    def alternatives(self) -> int | None:
        """Alternatives beside each token; None: no log-probabilities."""
        return self.logprobs


class Usage(msgspec.Struct, frozen=True):
    """Tokens of a request; the token that stopped it counts."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatMessage(msgspec.Struct, frozen=True):
    """The assistant's turn."""

    content: str
    role: str = "assistant"


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


class ChatReply(msgspec.Struct, frozen=True):
    """The whole answer."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    object: str = "chat.completion"


class ChatDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is new in a streamed answer."""

    role: str | None = None
    content: str | None = None


class ChatChunkChoice(msgspec.Struct, frozen=True):
    """A piece of one answer."""

    index: int
    delta: ChatDelta
    finish_reason: str | None = None
    logprobs: ChatLogprobs | None = None


class ChatChunk(msgspec.Struct, frozen=True):
    """One event of a stream. `usage` is null but in the last when asked for, absent otherwise."""

    id: str
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    object: str = "chat.completion.chunk"


class TextChoice(msgspec.Struct, frozen=True):
    """One answer to one prompt, or a piece of it."""

    index: int
    text: str
    finish_reason: str | None = None
    logprobs: TextLogprobs | None = None


class TextReply(msgspec.Struct, frozen=True):
    """The whole answer, or one event of a stream."""

    id: str
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    object: str = "text_completion"


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
