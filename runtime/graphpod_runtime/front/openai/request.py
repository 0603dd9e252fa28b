"""Requests of the OpenAI API: pydantic, because they come from outside."""

from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, Field, field_validator

from graphpod_runtime.front.openai.fields import (
    MAX_ALTERNATIVES,
    MAX_MESSAGES,
    MAX_METADATA,
    MAX_PROMPTS,
    MAX_SALT,
    MAX_STOPS,
    STRICT,
    MaxTokens,
    MetadataName,
    MetadataValue,
    StopString,
    StopTokens,
    Text,
    ThinkingTokens,
    Tokens,
    whole_characters,
)
from graphpod_runtime.front.openai.messages import Conversation, Message
from graphpod_runtime.front.openai.sampling.sampling_fields import MAX_CHOICES, SamplingFields
from graphpod_runtime.front.openai.structured.request import StructuredFields
from graphpod_runtime.front.openai.turn.tool_fields import ToolChoiceFields
from graphpod_runtime.front.openai.unbuilt_fields import (
    CHAT_NOT_BUILT,
    NOT_BUILT,
    TEXT_NOT_BUILT,
    Ignored,
    take_unknown,
)
from graphpod_runtime.front.requests.errors import invalid

UNUSED = (
    "user",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "spaces_between_special_tokens",
)
"""Fields that OpenAI or vLLM documents and that cannot change an answer: checked, and then dropped."""


class StreamOptions(BaseModel):
    """What a stream carries besides text."""

    model_config = STRICT

    include_usage: bool | None = False
    """Send the token counts in a last event."""
    continuous_usage_stats: bool | None = False
    """Send the token counts so far in every event; only with `include_usage: true`, otherwise without effect."""
    include_obfuscation: bool | None = None
    """No effect. OpenAI pads events against eavesdroppers that count bytes; this server pads none."""


class GenerationRequest(SamplingFields, StructuredFields):
    """The fields that both kinds of request share. Null means the default."""

    model_config = STRICT
    not_built: ClassVar[dict[str, tuple[Any, ...]]] = NOT_BUILT

    model: str | None = None
    """The model's name, as `GET /v1/models` lists it. Default: the one that is served."""
    temperature: float | None = Field(None, ge=0, le=2)
    """0 always takes the likeliest token. Default: the model's `generation_config.json`, else 1."""
    top_p: float | None = Field(None, gt=0, le=1)
    """Sample from the likeliest tokens that together have this probability. Default as for `temperature`, else 1."""
    top_k: int | None = Field(None, ge=-1, lt=2**31)
    """Sample from so many of the likeliest tokens; 0 and -1: from all. Default as for `temperature`, else all."""
    min_p: float | None = Field(None, ge=0, le=1)
    """Leave out tokens that are less likely than this share of the likeliest one's probability. Default 0."""
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    """Seed of the sampler. Default: a random one."""
    stop: StopString | Annotated[list[StopString], Field(max_length=MAX_STOPS, fail_fast=True)] | None = None
    """The answer ends before the first of these strings."""
    stop_token_ids: StopTokens | None = None
    """The answer ends before the first of these tokens."""
    max_tokens: MaxTokens | None = None
    """Most tokens of the answer. Default: what the model's context leaves."""
    stream: bool | None = False
    """Send the answer as [events](#streams)."""
    stream_options: StreamOptions | None = None
    """Only with `stream: true`."""
    return_token_ids: bool | None = False
    """Send the token ids of the prompt and of the answer, without that of a token that stopped it."""
    ignore_eos: bool | None = False
    """Go on after the model's end token."""
    priority: int | None = Field(None, ge=-(2**31), lt=2**31)
    """Requests with lower numbers are scheduled first. Default 0."""
    cache_salt: Annotated[str, Field(min_length=1, max_length=MAX_SALT), AfterValidator(whole_characters)] | None = None
    """Only requests of the same salt share the KV cache of a common beginning."""
    user: str | None = None
    """No effect."""
    metadata: Annotated[dict[MetadataName, MetadataValue], Field(max_length=MAX_METADATA)] | None = None
    """No effect. Names have at most 64 characters, values at most 512."""
    safety_identifier: str | None = None
    """No effect."""
    prompt_cache_key: str | None = None
    """No effect. Prefixes are found without a key; `cache_salt` keeps them apart."""
    prompt_cache_retention: str | None = None
    """No effect."""

    def take_ignored(self) -> Ignored:
        """The names of the fields that were sent and have no effect. ApiError 400 naming a field that would change the
        answer and is not built. What is accepted unused is not kept.
        """
        ignored: Ignored = {name: None for name in UNUSED if getattr(self, name) is not None}
        for name in ignored:
            setattr(self, name, None)
        take_unknown(self, self.not_built, "", "", ignored)
        self.take_ignored_of_structured(ignored)
        if self.stream_options is not None:
            take_unknown(self.stream_options, {}, "stream_options.", "stream_options.", ignored)
            if not self.stream:
                raise invalid("stream_options is only allowed when stream is true", param="stream_options")
        if self.prompt_logprobs and self.stream:
            message = "prompt_logprobs is not part of a stream; leave stream out, or send 0"
            raise invalid(message, param="prompt_logprobs")
        return ignored

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with its token counts."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def varies(self) -> bool:
        """Whether the events of a stream differ in more than their text."""
        return self.continuous_usage or bool(self.return_token_ids)

    @property
    def continuous_usage(self) -> bool:
        """Whether every event of a stream has the token counts so far."""
        return self.include_usage and bool(self.stream_options and self.stream_options.continuous_usage_stats)


def _refuse_unscored(asked: object, ids: list[int] | None) -> None:
    """ApiError 400 for logprob_token_ids without log-probabilities."""
    if ids and asked in (None, False):
        raise invalid("logprob_token_ids is only allowed with logprobs", param="logprob_token_ids")


class ChatRequest(Conversation, ToolChoiceFields, GenerationRequest):
    """POST /v1/chat/completions."""

    not_built = CHAT_NOT_BUILT

    messages: Annotated[list[Message], Field(fail_fast=True)] = Field(min_length=1, max_length=MAX_MESSAGES)
    """The conversation."""
    max_completion_tokens: MaxTokens | None = None
    """OpenAI's new name of `max_tokens`, and takes precedence over it."""
    logprobs: bool | None = False
    """Send the log-probability of each token of the answer."""
    top_logprobs: int | None = Field(None, ge=0, le=MAX_ALTERNATIVES)
    """Also send the log-probabilities of this many likeliest tokens at each place; only with `logprobs: true`."""
    echo: bool | None = False
    """Begin the answer with the last message, where that is the assistant's."""
    add_special_tokens: bool | None = False
    """Add the tokens that begin a text of this model to what the chat template writes."""
    include_reasoning: bool | None = True
    """false: leave the reasoning out of the answer. Its tokens count all the same."""
    thinking_token_budget: ThinkingTokens | None = None
    """[Most tokens of reasoning](../how-to/tools.md#thinking-budgets): then the reasoning is closed. -1: as many as it
    likes."""
    thinking_budget: ThinkingTokens | None = None
    """Qwen's name of `thinking_token_budget`, which takes precedence."""

    def take_ignored(self) -> Ignored:
        """Those of the messages included."""
        ignored = super().take_ignored()
        self.take_ignored_of_messages(ignored)
        return ignored

    @property
    def most_reasoning(self) -> tuple[str, int] | None:
        """The field that limits the tokens of reasoning, and their number; None: no limit."""
        for name in ("thinking_token_budget", "thinking_budget"):
            if (tokens := getattr(self, name)) is not None:
                return None if tokens < 0 else (name, tokens)
        return None

    @property
    def echoed(self) -> str:
        """What the answer begins with. ApiError 400 as `Message.plain`."""
        if not self.echo or self.messages[-1].role != "assistant":
            return ""
        return self.messages[-1].plain(len(self.messages) - 1)["content"] or ""

    @property
    def alternatives(self) -> int | None:
        """Alternatives to each token; None: no log-probabilities. ApiError 400 for the one field without the
        other, as OpenAI has it.
        """
        if not self.logprobs and self.top_logprobs:
            raise invalid("top_logprobs is only allowed when logprobs is true", param="top_logprobs")
        _refuse_unscored(self.logprobs, self.logprob_token_ids)
        if self.logprob_token_ids:
            return len(self.logprob_token_ids)
        return (self.top_logprobs or 0) if self.logprobs else None


OF_GENERATION = tuple(
    name
    for name in GenerationRequest.model_fields
    if name in ChatRequest.model_fields and name not in ("model", "max_tokens", "stream", "stream_options", *UNUSED)
)
"""The fields of generation by which other endpoints ask a chat."""


class CompletionRequest(GenerationRequest):
    """POST /v1/completions. A prompt is text or token ids, alone or in a list; each gives one choice."""

    not_built = TEXT_NOT_BUILT

    prompt: (
        Text
        | Annotated[list[Text], Field(max_length=MAX_PROMPTS, fail_fast=True)]
        | Tokens
        | Annotated[list[Tokens], Field(max_length=MAX_PROMPTS, fail_fast=True)]
    )
    """Text or token ids, alone or in a list; each prompt gives `n` choices."""
    max_tokens: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    """Most tokens of the answer; 0, with `echo`: the prompt and its log-probabilities alone. Default 16."""
    echo: bool | None = False
    """Begin the answer with the prompt."""
    best_of: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    """Generate this many answers to each prompt, and send the `n` with the highest mean log-probability. Not in a
    stream. Default `n`."""
    add_special_tokens: bool | None = True
    """Add the tokens that begin a text of this model to prompts that are text."""
    logprobs: int | None = Field(None, ge=0, le=MAX_ALTERNATIVES)
    """Send the log-probability of each token, and of this many likeliest ones; with `echo` for the prompt, too."""

    @property
    def choices(self) -> int:
        """Answers that are made of each prompt. ApiError 400 for fewer than are sent, and for more in a stream."""
        sent, made = self.n or 1, self.best_of or self.n or 1
        if made < sent:
            message = f"best_of is {made} and n is {sent}: so many cannot be the best of fewer; raise best_of"
            raise invalid(message, param="best_of")
        if made > sent and self.stream:
            message = "best_of is not allowed in a stream: which answers are best is known at their end"
            raise invalid(message, param="best_of")
        return made

    @field_validator("logprobs", mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:
        """0 and false are two things here: 0 asks for log-probabilities without alternatives, false for none."""
        return None if value is False else value

    @property
    def alternatives(self) -> int | None:
        """Alternatives to each token; None: no log-probabilities. ApiError 400 for logprob_token_ids without them."""
        _refuse_unscored(self.logprobs, self.logprob_token_ids)
        return len(self.logprob_token_ids) if self.logprob_token_ids else self.logprobs


class TokenizeRequest(Conversation):
    """POST /tokenize: a text, or a conversation as a chat's prompt."""

    not_built: ClassVar[dict[str, tuple[Any, ...]]] = {
        name: neutral for name, neutral in CHAT_NOT_BUILT.items() if name != "add_special_tokens"
    }

    model: str | None = None
    """The model's name."""
    prompt: Text | None = None
    """A text; either this or `messages`."""
    messages: Annotated[list[Message], Field(fail_fast=True, max_length=MAX_MESSAGES)] | None = None  # type: ignore[assignment]
    """A conversation."""
    add_special_tokens: bool | None = None
    """Add the tokens that begin a text of this model. Default: true for a prompt. Not with `messages`."""
    return_token_strs: bool | None = False
    """Send each token as the vocabulary spells it, too."""

    def take_ignored(self) -> Ignored:
        """As that of GenerationRequest. ApiError 400 without exactly one of prompt and messages."""
        if (self.prompt is None) == (not self.messages):
            raise invalid("send either prompt or messages", param="prompt", code="missing_required_parameter")
        if self.messages and self.add_special_tokens:
            message = "add_special_tokens is for a prompt; a chat template writes its own tokens"
            raise invalid(message, param="add_special_tokens", code="unsupported_parameter")
        ignored: Ignored = {}
        take_unknown(self, self.not_built, "", "", ignored)
        self.take_ignored_of_messages(ignored)
        return ignored


class DetokenizeRequest(BaseModel):
    """POST /detokenize."""

    model_config = STRICT

    model: str | None = None
    """The model's name."""
    tokens: Tokens
    """Token ids, as many as the model's context at most."""

    def take_ignored(self) -> Ignored:
        """As that of GenerationRequest."""
        ignored: Ignored = {}
        take_unknown(self, {"skip_special_tokens": (False,)}, "", "", ignored)
        return ignored
