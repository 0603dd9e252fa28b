"""Requests for vectors, in the forms of OpenAI and vLLM: pydantic, because they come from outside."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from graphpod_runtime.front.openai.fields import (
    MAX_MESSAGES,
    MAX_SALT,
    STRICT,
    Text,
    Tokens,
    whole_characters,
)
from graphpod_runtime.front.openai.messages import Conversation, Message
from graphpod_runtime.front.openai.unbuilt import Ignored, take_unknown
from graphpod_runtime.front.requests.errors import invalid

MAX_INPUTS = 2048
"""Texts of one request, as OpenAI has it."""
NOT_BUILT: dict[str, tuple[Any, ...]] = {
    "chat_template": (),
    "padding": ("do_not_pad",),
    "embed_dtype": ("float32",),
    "endianness": ("native", "little"),
    "mm_processor_kwargs": ({},),
}
TEXTS_NOT_BUILT = NOT_BUILT | {
    "chat_template_kwargs": ({},),
    "instruction": ("",),
    "max_tokens_per_query": (0,),
    "max_tokens_per_doc": (0,),
    "add_special_tokens": (True,),
}


def _few(value: Any) -> Any:
    """One error for too many texts, not one for each form that they could have had."""
    if isinstance(value, list) and len(value) > MAX_INPUTS and not isinstance(value[0], int):
        message = "holds {count} texts; one request takes {most}"
        raise PydanticCustomError("too_many_texts", message, {"count": len(value), "most": MAX_INPUTS})
    return value


SeveralTexts = Annotated[list[Text], Field(min_length=1, max_length=MAX_INPUTS, fail_fast=True)]
SeveralPrompts = Annotated[list[Tokens], Field(min_length=1, max_length=MAX_INPUTS, fail_fast=True)]
Texts = Annotated[Text | SeveralTexts, BeforeValidator(_few)]


class VectorRequest(BaseModel):
    """The fields that all three share. Null means the default."""

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
    """Send the token ids of the prompt and of the answer, that of a token that stopped it left out."""
    ignore_eos: bool | None = False
    """Go on after the model's end token."""
    priority: int | None = Field(None, ge=-(2**31), lt=2**31)
    """Requests with lower numbers are admitted earlier. Default 0."""
    cache_salt: Annotated[str, Field(min_length=1, max_length=MAX_SALT), AfterValidator(whole_characters)] | None = None
    """Requests share the KV cache of a common beginning with requests of the same salt only."""
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
        take_unknown(self, self.not_built, "", "", ignored)
        self.take_ignored_of_structured(ignored)
        for name in UNUSED:
            setattr(self, name, None)
        if self.stream_options is not None:
            take_unknown(self.stream_options, {}, "stream_options.", "stream_options.", ignored)
            if not self.stream:
                raise invalid("stream_options is only allowed when stream is true", param="stream_options")
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


class ChatRequest(Conversation, ToolChoiceFields, GenerationRequest):
    """POST /v1/chat/completions."""

    not_built = CHAT_NOT_BUILT

    messages: Annotated[list[Message], Field(fail_fast=True)] = Field(min_length=1, max_length=MAX_MESSAGES)
    """The conversation."""
    max_completion_tokens: MaxTokens | None = None
    """OpenAI's new name of `max_tokens`; counts where both are sent."""
    logprobs: bool | None = False
    """Send the log-probability of each token of the answer."""
    top_logprobs: int | None = Field(None, ge=0, le=MAX_ALTERNATIVES)
    """And those of so many likeliest tokens; only with `logprobs: true`."""
    include_reasoning: bool | None = True
    """false: leave the reasoning out of the answer. Its tokens count all the same."""

    def take_ignored(self) -> Ignored:
        """Those of the messages included."""
        ignored = super().take_ignored()
        self.take_ignored_of_messages(ignored)
        return ignored

    @property
    def alternatives(self) -> int | None:
        """Alternatives to each token; None: no log-probabilities. ApiError 400 for the one field without the
        other, as OpenAI has it.
        """
        if not self.logprobs and self.top_logprobs:
            raise invalid("top_logprobs is only allowed when logprobs is true", param="top_logprobs")
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionRequest(GenerationRequest):
    """POST /v1/completions. A prompt is text or token ids, alone or in a list; each gives one choice."""

    not_built = TEXT_NOT_BUILT

    prompt: (
        Text
        | Annotated[list[Text], Field(max_length=MAX_PROMPTS, fail_fast=True)]
        | Tokens
        | Annotated[list[Tokens], Field(max_length=MAX_PROMPTS, fail_fast=True)]
    )
    """Text or token ids, alone or in a list; each prompt gives one choice."""
    max_tokens: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    """Most tokens of the answer; 0, with `echo`: the prompt and its log-probabilities alone. Default 16."""
    echo: bool | None = False
    """Begin the answer with the prompt."""
    logprobs: int | None = Field(None, ge=0, le=MAX_ALTERNATIVES)
    """Send the log-probability of each token, and those of so many likeliest ones; with `echo` for the prompt, too."""

    @field_validator("logprobs", mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:
        """0 and false are two things here: 0 asks for log-probabilities without alternatives, false for none."""
        return None if value is False else value

    @property
    def alternatives(self) -> int | None:
        """Alternatives to each token; None: no log-probabilities."""
        return self.logprobs


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
    truncate_prompt_tokens: int | None = Field(None, ge=-1, lt=2**31)
    """Cut each text to so many tokens; -1: to what the context holds. Default: a longer text is refused."""
    truncation_side: Literal["left", "right"] | None = None
    """Where a text is cut. Default `right`: its end goes."""
    use_activation: bool | None = None
    """Scale each vector to length 1. Default true."""
    priority: int | None = Field(None, ge=-(2**31), lt=2**31)
    """Requests with lower numbers are admitted earlier. Default 0."""
    cache_salt: Annotated[str, Field(min_length=1, max_length=MAX_SALT), AfterValidator(whole_characters)] | None = None
    """Requests share the KV cache of a common beginning with requests of the same salt only."""
    user: str | None = None
    """No effect."""

    def take_ignored(self) -> Ignored:
        """The names of the fields that were sent and have no effect. ApiError 400 naming a field that would change the
        answer and is not built.
        """
        ignored: Ignored = {} if self.user is None else {"user": None}
        take_unknown(self, self.not_built, "", "", ignored)
        return ignored


class EmbeddingRequest(VectorRequest, Conversation):
    """POST /v1/embeddings."""

    input: Annotated[Text | SeveralTexts | Tokens | SeveralPrompts | None, BeforeValidator(_few)] = None
    """Text or token ids, alone or in a list; each gives one vector. Either this or `messages`."""
    messages: Annotated[list[Message], Field(fail_fast=True, max_length=MAX_MESSAGES)] | None = None  # type: ignore[assignment]
    """A conversation, which gives one vector."""
    encoding_format: Literal["float", "base64"] | None = None
    """Numbers, or little-endian float32 in base64. Default `float`."""
    dimensions: int | None = Field(None, ge=1, lt=2**31)
    """Length of the vectors. Other lengths than the model's own need a model whose config.json says `is_matryoshka` or
    has `matryoshka_dimensions`."""
    add_special_tokens: bool | None = None
    """Add the tokens that begin or end a text of this model. Default: true for `input`. Not with `messages`."""

    def take_ignored(self) -> Ignored:
        """Those of the messages included. ApiError 400 without exactly one of input and messages."""
        if (self.input is None) == (not self.messages):
            raise invalid("send either input or messages", param="input", code="missing_required_parameter")
        if self.messages and self.add_special_tokens:
            message = "add_special_tokens is for input; a chat template writes its own tokens"
            raise invalid(message, param="add_special_tokens", code="unsupported_parameter")
        ignored = super().take_ignored()
        self.take_ignored_of_messages(ignored)
        return ignored


class ScoreRequest(VectorRequest):
    """POST /v1/score: two sides, by any of four pairs of names."""

    not_built = TEXTS_NOT_BUILT

    text_1: Texts | None = None
    """One text, or as many as there are on the other side."""
    text_2: Texts | None = None
    """Texts that are compared with those of `text_1`."""
    queries: Texts | None = None
    """Another name of `text_1`, with `documents` or `items`."""
    documents: Texts | None = None
    """Another name of `text_2`, with `queries`."""
    items: Texts | None = None
    """Another name of `text_2`, with `queries`."""
    data_1: Texts | None = None
    """Another name of `text_1`, with `data_2`."""
    data_2: Texts | None = None
    """Another name of `text_2`, with `data_1`."""

    @property
    def sides(self) -> tuple[list[str], list[str]]:
        """The texts to compare, as many on both sides. ApiError 400 for other fields, and counts that do not fit."""
        names = (("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2"))
        sent = [name for name in dict.fromkeys(sum(names, ())) if getattr(self, name) is not None]
        pair = next((pair for pair in names if sorted(pair) == sorted(sent)), None)
        if pair is None:
            text = "send text_1 and text_2, or queries and documents"
            raise invalid(text, param=sent[0] if sent else "text_1", code="missing_required_parameter")
        first, second = (_listed(getattr(self, name)) for name in pair)
        if len(first) == 1:
            first = first * len(second)
        if len(first) != len(second):
            raise invalid(
                f"{pair[0]} has {len(first)} texts and {pair[1]} has {len(second)}; send one or as many", param=pair[0]
            )
        return first, second


class RerankRequest(VectorRequest):
    """POST /v1/rerank."""

    not_built = TEXTS_NOT_BUILT

    query: Text
    """What the documents are compared with."""
    documents: Texts
    """The texts to order."""
    top_n: int | None = Field(None, ge=0, lt=2**31)
    """Send so many of the closest. Default: all."""

    @property
    def listed(self) -> list[str]:
        """The documents."""
        return _listed(self.documents)


def _listed(texts: str | list[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else texts
