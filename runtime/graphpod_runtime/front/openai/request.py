"""Requests of the OpenAI API: pydantic, because they come from outside."""

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from graphpod_runtime.front.requests.errors import ApiError, invalid, shown, unrecognized

NOT_BUILT: dict[str, tuple[Any, ...]] = {
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
    "tool_choice": (),
    "parallel_tool_calls": (),
    "functions": ([],),
    "function_call": (),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": (),
    "verbosity": (),
    "web_search_options": (),
    "store": (False,),
    "service_tier": ("auto", "default"),
    "chat_template": (),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "skip_special_tokens": (True,),
    "truncate_prompt_tokens": (),
}
"""Known fields that are not built, with the values that mean "not used" (null always does)."""

NEEDS = {"tool_choice": "tools", "parallel_tool_calls": "tools", "function_call": "functions"}
"""Fields that OpenAI, too, refuses without another one, whatever their value."""


def _is_neutral(value: Any, neutral: tuple[Any, ...]) -> bool:
    """0 and False are two things here: `logprobs: 0` asks for log-probabilities, `logprobs: false` does not."""
    return any(value == word and isinstance(value, bool) == isinstance(word, bool) for word in neutral)


def _is_no_number(value: Any, neutral: tuple[Any, ...]) -> bool:
    """Whether a string or a truth value stands where only numbers do."""
    numbers = [word for word in neutral if isinstance(word, int | float) and not isinstance(word, bool)]
    return isinstance(value, str | bool) and 0 < len(numbers) == len(neutral)


def _not_built(name: str, value: Any, neutral: tuple[Any, ...]) -> ApiError:
    """400: the field would change the answer. Lists and objects are not written out."""
    if name in NEEDS:
        needs = NEEDS[name]
        message = f"{name} is only allowed with {needs}, and {needs} is not built; leave both out"
    elif name == "response_format" and isinstance(value, dict) and isinstance(kind := value.get("type"), str):
        message = f"response_format type {shown(kind)} is not built; only text is"
    else:
        what = name if isinstance(value, list | dict) else f"{name} {_json(value)}"
        only = " or ".join(json.dumps(word) for word in neutral if word not in ("", [], {}))
        message = f"{what} is not built; " + (f"only {only} is" if only else "leave the field out")
    return invalid(message, param=name, code="unsupported_parameter")


def _json(value: Any) -> str:
    """A string, number or truth value as the client wrote it; long ones cut."""
    if isinstance(value, int) and abs(value) >= 2**63:
        return "(a huge number)"
    return json.dumps(shown(value) if isinstance(value, str) else value, ensure_ascii=False)


MAX_STOPS = 16
MAX_STOP_LENGTH = 1024
"""Characters of a stop string."""
MAX_SALT = 256
"""Characters of `cache_salt`."""
MAX_MESSAGES = MAX_PROMPTS = 8192
MAX_TOOL_CALLS = 128
"""Of one turn."""
MAX_DEPTH = 16
"""Levels of lists and objects in what a chat template reads."""
MAX_VARIABLES = 16_384
"""Bytes of `chat_template_kwargs` as JSON."""
MAX_METADATA = 16
"""Entries of `metadata`."""
MAX_ALTERNATIVES = 20
"""Alternatives to each token of an answer."""


def _whole(text: str) -> str:
    """JSON can spell half a surrogate pair, which no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        message = "holds half a surrogate pair ({half}) at character {at}; send whole characters"
        raise PydanticCustomError("half_character", message, {"half": half, "at": error.start}) from None
    return text


Text = Annotated[str, AfterValidator(_whole)]
StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH), AfterValidator(_whole)]
# A list fails at its first wrong item: an error for each of a million would cost gigabytes.
Tokens = Annotated[list[int], Field(fail_fast=True)]
# Bounded: the wire to the engine holds 64 bits, and messages write numbers out.
StopTokens = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=MAX_STOPS, fail_fast=True)]
MaxTokens = Annotated[int, Field(ge=1, lt=2**63)]
MetadataName = Annotated[str, Field(max_length=64)]
MetadataValue = Annotated[str, Field(max_length=512)]
STRICT = ConfigDict(extra="allow", strict=True, allow_inf_nan=False, use_attribute_docstrings=True)
"""true and "5" are no numbers; neither are NaN and Infinity, which Python's JSON reads. The texts below the fields are
those of the reference page.
"""


def _depth(value: Any, allowed: int = MAX_DEPTH) -> bool:
    """Whether lists and objects in `value` lie at most `allowed` levels deep."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return items is None or (allowed > 0 and all(_depth(item, allowed - 1) for item in items))


UNUSED = ("user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention")
"""Fields that OpenAI documents and that cannot change an answer: checked, and then dropped."""


class StreamOptions(BaseModel):
    """What a stream carries besides text."""

    model_config = STRICT | ConfigDict(extra="forbid")

    include_usage: bool | None = False
    """Send the token counts in a last event."""
    include_obfuscation: bool | None = None
    """No effect. OpenAI pads events against eavesdroppers that count bytes; this server pads none."""


class GenerationRequest(BaseModel):
    """The fields that both kinds of request share. Null means the default."""

    model_config = STRICT

    model: str
    """The model's name, as `GET /v1/models` lists it."""
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
    ignore_eos: bool | None = False
    """Go on after the model's end token."""
    priority: int | None = Field(None, ge=-(2**31), lt=2**31)
    """Requests with lower numbers are admitted earlier. Default 0."""
    cache_salt: Annotated[str, Field(min_length=1, max_length=MAX_SALT), AfterValidator(_whole)] | None = None
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

    def refuse_unbuilt(self) -> None:
        """ApiError 400 naming a field that would change the answer and is not built, or that is unknown. What is
        accepted unused is not kept.
        """
        for name, value in (self.model_extra or {}).items():
            if value is None:
                continue
            if name not in NOT_BUILT:
                name = shown(name)
                raise invalid(unrecognized(name), param=name, code="unknown_parameter")
            if _is_no_number(value, NOT_BUILT[name]):
                raise invalid(f"{name} must be a number, not {_json(value)}", param=name, code="invalid_type")
            if not _is_neutral(value, NOT_BUILT[name]):
                raise _not_built(name, value, NOT_BUILT[name])
        if self.model_extra:
            self.model_extra.clear()
        for name in UNUSED:
            setattr(self, name, None)
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
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class TextPart(BaseModel):
    """The one kind of content part that a text model reads."""

    model_config = STRICT | ConfigDict(extra="forbid")

    type: Literal["text"]
    """The only kind of part."""
    text: Text
    """Parts are joined without a space."""


class FunctionCall(BaseModel):
    """A function and its arguments: JSON, in a string."""

    model_config = STRICT | ConfigDict(extra="forbid")

    name: Text
    """The function."""
    arguments: Text
    """JSON, in a string."""


class ToolCall(BaseModel):
    """What an assistant asked for in an earlier turn."""

    model_config = STRICT | ConfigDict(extra="ignore")  # some clients send back the `index` of a stream's pieces

    id: Text
    """The call's id."""
    type: Literal["function"] = "function"
    """The only kind of call."""
    function: FunctionCall
    """The call."""

    def plain(self, where: str) -> dict[str, Any]:
        """What a chat template reads: arguments as an object, as templates expect them, where they are one."""
        try:
            arguments = json.loads(self.function.arguments)
        except (ValueError, RecursionError):
            arguments = None
        if not _depth(arguments):
            field = f"{where}.function.arguments"
            raise invalid(f"{field} is nested more than {MAX_DEPTH} levels deep", param=field)
        function = {
            "name": self.function.name,
            "arguments": arguments if isinstance(arguments, dict) else self.function.arguments,
        }
        return {"id": self.id, "type": self.type, "function": function}


class Message(BaseModel):
    """One turn of a conversation."""

    model_config = STRICT

    role: Literal["system", "developer", "user", "assistant", "tool"]
    """The chat template reads `developer` as `system`."""
    content: Text | Annotated[list[TextPart], Field(fail_fast=True)] | None = None
    """Required, except in an assistant's turn with `tool_calls`."""
    name: Text | None = None
    """The speaker's name, for templates that read it."""
    tool_calls: Annotated[list[ToolCall], Field(fail_fast=True, max_length=MAX_TOOL_CALLS)] | None = None
    """Calls of an earlier assistant's turn, for templates that read them."""
    tool_call_id: Text | None = None
    """The call that a turn of role `tool` answers."""

    def plain(self, at: int) -> dict[str, Any]:
        """What a chat template reads. ApiError 400 for a field it would silently drop, or one that is missing or of
        another role; `at` is the turn's index.
        """
        for name, value in (self.model_extra or {}).items():
            if value not in (None, []):
                where = f"messages[{at}].{shown(name)}"
                raise invalid(
                    f"{where} is not built; leave the field out",
                    param=where,
                    code="unsupported_parameter",
                )
        for name, role in (("tool_calls", "assistant"), ("tool_call_id", "tool")):
            if getattr(self, name) and self.role != role:
                raise invalid(
                    f"messages[{at}].{name} belongs to a turn of role {role!r}", param=f"messages[{at}].{name}"
                )
        if self.content is None and not self.tool_calls:
            raise invalid(
                f"messages[{at}].content is missing or null; only an assistant's turn with tool_calls may be without",
                param=f"messages[{at}].content",
            )
        # OpenAI renamed the system role for its newer models; templates know the old word.
        turn: dict[str, Any] = {"role": "system" if self.role == "developer" else self.role, "content": self._text}
        if self.tool_calls:
            calls = enumerate(self.tool_calls)
            turn["tool_calls"] = [call.plain(f"messages[{at}].tool_calls[{number}]") for number, call in calls]
        more = {"name": self.name, "tool_call_id": self.tool_call_id}
        return turn | {name: value for name, value in more.items() if value is not None}

    @property
    def _text(self) -> str | None:
        """The content's parts joined; templates tell a turn of tool calls by its None."""
        return "".join(part.text for part in self.content) if isinstance(self.content, list) else self.content


class ChatRequest(GenerationRequest):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(fail_fast=True)] = Field(min_length=1, max_length=MAX_MESSAGES)
    """The conversation."""
    max_completion_tokens: MaxTokens | None = None
    """OpenAI's new name of `max_tokens`; counts where both are sent."""
    logprobs: bool | None = False
    """Send the log-probability of each token of the answer."""
    top_logprobs: int | None = Field(None, ge=0, le=MAX_ALTERNATIVES)
    """And those of so many likeliest tokens; only with `logprobs: true`."""
    chat_template_kwargs: dict[Text, Any] | None = None
    """Variables of the model's chat template (`enable_thinking`); one that it does not read is refused."""

    @property
    def variables(self) -> dict[str, Any]:
        """What the chat template reads besides messages (`enable_thinking`). ApiError 400 when it is too large."""
        found = self.chat_template_kwargs or {}
        field = "chat_template_kwargs"
        if not _depth(found):
            raise invalid(f"{field} is nested more than {MAX_DEPTH} levels deep", param=field)
        try:
            size = len(json.dumps(found, allow_nan=False, ensure_ascii=False).encode())
        except UnicodeEncodeError as error:
            raise invalid(f"{field} holds half a surrogate pair; send whole characters", param=field) from error
        except ValueError as error:  # NaN
            raise invalid(f"{field} is not JSON: {error}", param=field) from error
        if size > MAX_VARIABLES:
            raise invalid(f"{field} takes {size} bytes as JSON; at most {MAX_VARIABLES} are read", param=field)
        return found

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
