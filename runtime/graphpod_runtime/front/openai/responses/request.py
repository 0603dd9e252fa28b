"""POST /v1/responses: its fields, and the chat request that they stand for."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field

from graphpod_runtime.front.openai.fields import MAX_ALTERNATIVES, MAX_MESSAGES, STRICT, MaxTokens, Text, ThinkingTokens
from graphpod_runtime.front.openai.request import OF_GENERATION, GenerationRequest
from graphpod_runtime.front.openai.responses.items import Item, Turn, take_ignored, turns_of
from graphpod_runtime.front.openai.structured.request import NAMING
from graphpod_runtime.front.openai.turn.reasoning_fields import ReasoningSwitch
from graphpod_runtime.front.openai.unbuilt_fields import (
    CHAT_NOT_BUILT,
    CHATS_ALONE,
    NOT_BESIDES_CHATS,
    Ignored,
    refuse_absent,
    take_unknown,
)
from graphpod_runtime.front.requests.errors import invalid, shown
from graphpod_runtime.front.requests.renamed_fields import Renames

LOGPROBS = "message.output_text.logprobs"
INCLUDABLE = (LOGPROBS, "reasoning.encrypted_content")
"""The second one has no effect: thoughts are sent in full, and nothing is encrypted."""

OF_CHAT = ("messages", "max_completion_tokens", "reasoning_effort", "verbosity", "functions")
"""Fields of a chat that a response does not have, or has by another name."""
NOT_BUILT: dict[str, tuple[Any, ...]] = {name: CHAT_NOT_BUILT.get(name, ()) for name in OF_CHAT} | {
    **CHATS_ALONE,
    "conversation": (),
    "prompt": (),
    "max_tool_calls": (),
    "context_management": ([],),
    "moderation": (),
    "prompt_cache_options": (),
    "service_tier": ("auto", "default"),
    "image": (),
    "stop_sequences": ([],),
    "previous_input_messages": (),
    "thinking_budget": (-1,),
}
"""Fields that would change a response and are not built, with the values that mean "not used"."""

BUILT = ("tools", "tool_choice", "parallel_tool_calls", "reasoning", "store")
"""Fields that a response has, and a chat may not have."""

NOT_HERE: dict[str, tuple[Any, ...]] = {"max_tokens": ()} | NOT_BESIDES_CHATS
"""Fields of generation that a response does not have, with the values that mean "not used"."""

RENAMED: Renames = (
    (r"messages(\[\d+\])?(\.[\w.\[\]]+)?", "input"),
    (r"max_completion_tokens|max_tokens", "max_output_tokens"),
    (r"response_format\.json_schema\b", "text.format"),
    (r"response_format\b", "text.format"),
    (r"(tools\[\d+\])\.function\b", r"\1"),
    (r"tool_choice\.function\b", "tool_choice"),
    (r"tool_choice\.allowed_tools(\.tools\[\d+\])\.function\b", r"tool_choice\1"),
    (r"tool_choice\.allowed_tools\b", "tool_choice"),
    (r"reasoning_effort\b", "reasoning.effort"),
    (r"(?<!text\.)\bverbosity\b", "text.verbosity"),
)
"""Fields of the chat request as the response's fields, in paths."""


class TextFormat(BaseModel):
    """The form of the answer's text."""

    model_config = STRICT

    type: Literal["text", "json_object", "json_schema"]
    """`text`, `json_object`, or `json_schema` with a `schema`."""
    name: Text | None = None
    """The schema's name."""
    description: Text | None = None
    """What the schema is for."""
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    """The JSON schema."""
    strict: bool | None = None
    """The answer follows the schema, whatever stands here."""


class TextConfig(BaseModel):
    """The answer's text."""

    model_config = STRICT

    format: TextFormat | None = None
    """Its form. Default: text."""
    verbosity: Literal["low", "medium", "high"] | None = None
    """Only `medium`, which has no effect."""


class ReasoningConfig(BaseModel):
    """How the model thinks."""

    model_config = STRICT

    effort: Text | None = None
    """As `reasoning_effort` of a chat. No effect if the model's chat template reads no such variable."""
    summary: Literal["auto", "concise", "detailed"] | None = None
    """No effect: thoughts are sent in full, without a summary."""
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    """No effect."""


class ResponsesRequest(GenerationRequest):
    """POST /v1/responses."""

    not_built: ClassVar[dict[str, tuple[Any, ...]]] = {
        name: neutral for name, neutral in (CHAT_NOT_BUILT | NOT_BUILT).items() if name not in BUILT
    }

    model: str | None = None
    """The model's name. Default: the one that is served."""
    input: Text | Annotated[list[Item], Field(fail_fast=True, min_length=1, max_length=MAX_MESSAGES)]
    """A user's text, or items."""
    instructions: Text | None = None
    """A system turn before all others. Those of `previous_response_id` do not count."""
    max_output_tokens: MaxTokens | None = None
    """Most tokens of the answer, those of reasoning included. Default: what the model's context leaves."""
    max_tokens: MaxTokens | None = None
    """Refused: this endpoint has `max_output_tokens`."""
    previous_response_id: str | None = None
    """Go on after that response: its input and output come before `input`. This pod must have it stored."""
    store: bool | None = True
    """Keep the response in this pod's memory, so that its id can be used. Default true."""
    background: bool | None = False
    """Answer at once, with status `queued`; the response is read by its id. Needs `store`, not with `stream`."""
    include: Annotated[list[str], Field(max_length=16)] | None = None
    """`message.output_text.logprobs` sends the log-probability of each token; `reasoning.encrypted_content` has no
    effect; others are refused."""
    top_logprobs: int | None = Field(None, ge=0, le=MAX_ALTERNATIVES)
    """Also send those of this many likeliest tokens; without the entry of `include` it has no effect."""
    text: TextConfig | None = None
    """The form of the answer's text."""
    reasoning: ReasoningConfig | None = None
    """How the model thinks."""
    thinking_token_budget: ThinkingTokens | None = None
    """As of a chat."""
    tools: list[dict[str, Any]] | None = None
    """Functions that the model may call: `type` is `function`, then `name`, `description`, `parameters`, `strict`."""
    tool_choice: str | dict[str, Any] | None = None
    """`auto`, `none`, `required`, one function, or `allowed_tools`."""
    parallel_tool_calls: bool | None = True
    """Whether the model may call several functions in one turn. Default true."""
    chat_template_kwargs: dict[Text, Any] | None = None
    """As of a chat: variables of the model's chat template. One that is set here counts before `reasoning`."""
    enable_response_messages: bool | None = False
    """vLLM's: send prompt and answer as text and tokens, too, in `input_messages` and `output_messages`."""
    truncation: Literal["auto", "disabled"] | None = "disabled"
    """Only `disabled`: input that exceeds the context is refused, never cut."""

    def take_ignored(self) -> Ignored:
        """The names of the fields that were sent and have no effect. ApiError 400 for fields that are not built, and
        for those that do not go together. What the response repeats (`metadata`, `user`) is kept.
        """
        ignored: Ignored = {}
        take_unknown(self, self.not_built, "", "", ignored)
        for at, owner in (("text", self.text), ("reasoning", self.reasoning), ("stream_options", self.stream_options)):
            if owner is not None:
                take_unknown(owner, {}, f"{at}.", f"{at}.", ignored)
        if self.text and self.text.format:
            take_unknown(self.text.format, {}, "text.format.", "text.format.", ignored)
            ignored.update(
                dict.fromkeys(f"text.format.{name}" for name in NAMING if getattr(self.text.format, name) is not None)
            )
        if isinstance(self.input, list):
            take_ignored(self.input, ignored)
        self._check()
        if self.top_logprobs is not None and not self.logprobs:
            ignored["top_logprobs"] = None
        if self.reasoning and (self.reasoning.summary or self.reasoning.generate_summary):
            ignored["reasoning.summary"] = None
        if "reasoning.encrypted_content" in (self.include or ()):
            ignored["include"] = None
        for name in ("include_usage", "continuous_usage_stats"):
            if getattr(self.stream_options, name, None):
                ignored[f"stream_options.{name}"] = None
        return ignored

    def _check(self) -> None:
        """ApiError 400 for values that are not built, and for fields that do not go together."""
        refuse_absent(self, NOT_HERE, {"max_tokens": "max_output_tokens"})
        if self.truncation == "auto":
            message = "truncation auto is not built; only disabled is: input is never cut"
            raise invalid(message, param="truncation", code="unsupported_parameter")
        for name in self.include or ():
            if name not in INCLUDABLE:
                message = f"include {shown(name)!r} is not built; only {LOGPROBS} is"
                raise invalid(message, param="include", code="unsupported_parameter")
        if self.background and self.store is False:
            raise invalid("background can only be used when `store` is true", param="background")
        if self.background and self.stream:
            message = "background with stream is not built; leave one of them out"
            raise invalid(message, param="background", code="unsupported_parameter")
        if self.stream_options is not None and not self.stream:
            raise invalid("stream_options is only allowed when stream is true", param="stream_options")
        for at, tool in enumerate(self.tools or ()):
            if (kind := tool.get("type")) != "function":
                message = f"tools[{at}] of type {shown(str(kind))} is not built; send tools of type function"
                raise invalid(message, param=f"tools[{at}].type", code="unsupported_parameter")

    @property
    def logprobs(self) -> bool:
        """Whether log-probabilities are sent."""
        return LOGPROBS in (self.include or ())

    @property
    def own_turns(self) -> list[Turn]:
        """The input as messages of a chat."""
        return [{"role": "user", "content": self.input}] if isinstance(self.input, str) else turns_of(self.input)

    def chat(self, turns: Sequence[Turn], model: str, switch: ReasoningSwitch) -> dict[str, Any]:
        """The body of the chat that answers these `turns`."""
        body = {name: value for name in OF_GENERATION if (value := getattr(self, name)) is not None}
        system = [] if self.instructions is None else [{"role": "system", "content": self.instructions}]
        tools, choice = self._tools()
        more = {
            "messages": [*system, *turns],
            "chat_template_kwargs": self.chat_template_kwargs,
            "model": model,
            "max_completion_tokens": self.max_output_tokens,
            "logprobs": self.logprobs or None,
            "return_token_ids": self.enable_response_messages or None,
            "top_logprobs": self.top_logprobs if self.logprobs else None,
            "tools": tools or None,
            "tool_choice": choice,
            "parallel_tool_calls": self.parallel_tool_calls if tools else None,
            "response_format": _response_format(self.text.format) if self.text and self.text.format else None,
            "reasoning_effort": self.reasoning.effort if self.reasoning and switch.has_effect else None,
            "thinking_token_budget": self.thinking_token_budget,
            "verbosity": self.text.verbosity if self.text and self.text.verbosity != "medium" else None,
        }
        return body | {name: value for name, value in more.items() if value is not None}

    def _tools(self) -> tuple[list[dict[str, Any]], Any]:
        """Tools and their choice as a chat has them."""
        tools = [_nested(tool) for tool in self.tools or ()]
        match self.tool_choice:
            case {"type": "function", **rest}:
                return tools, {"type": "function", "function": rest}
            case {"type": "allowed_tools", **rest}:
                listed = rest.get("tools")
                if isinstance(listed, list):
                    rest["tools"] = [_nested(tool) if isinstance(tool, dict) else tool for tool in listed]
                return tools, {"type": "allowed_tools", "allowed_tools": rest}
            case {"type": kind}:
                message = f"tool_choice of type {shown(str(kind))} is not built; send function or allowed_tools"
                raise invalid(message, param="tool_choice", code="unsupported_parameter")
        return tools, self.tool_choice


def _nested(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool, or the name of one, as a chat has it: all but the type in `function`."""
    function = {name: value for name, value in tool.items() if name != "type"}
    return {"function": function} | {name: value for name, value in tool.items() if name == "type"}


def _response_format(form: TextFormat) -> dict[str, Any] | None:
    """As a chat has it."""
    if form.type == "text":
        return None
    if form.type == "json_object":
        return {"type": "json_object"}
    schema = {"name": form.name, "description": form.description, "schema": form.schema_, "strict": form.strict}
    return {"type": "json_schema", "json_schema": {name: value for name, value in schema.items() if value is not None}}
