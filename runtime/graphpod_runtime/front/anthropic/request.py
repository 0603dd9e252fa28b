"""POST /v1/messages and its count of tokens: their fields, and the chat request that they stand for."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field

from graphpod_runtime.front.anthropic.blocks import Message, SystemBlock, ThinkingBlock, text_of
from graphpod_runtime.front.openai.fields import MAX_MESSAGES, MAX_STOPS, STRICT, MaxTokens, StopString, Text
from graphpod_runtime.front.openai.request import OF_GENERATION, GenerationRequest
from graphpod_runtime.front.openai.turn.reasoning_fields import SWITCHES, ReasoningSwitch
from graphpod_runtime.front.openai.turn.tool_fields import MAX_TOOLS
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

BUILT = ("tools", "tool_choice", "thinking", "service_tier", "messages")
NOT_BUILT: dict[str, tuple[Any, ...]] = {
    name: neutral for name, neutral in CHAT_NOT_BUILT.items() if name not in BUILT
} | {
    **CHATS_ALONE,
    "top_logprobs": (0,),
    "max_completion_tokens": (),
    "reasoning_effort": (),
    "parallel_tool_calls": (),
    "container": (),
    "context_management": (),
    "diagnostics": (),
    "inference_geo": (),
    "mcp_servers": ([],),
    "prefill": (),
    "speed": ("standard",),
    "task_budget": (),
    "thinking_token_budget": (-1,),
    "thinking_budget": (-1,),
}
"""Fields that would change an answer and are not built, with the values that mean "not used"."""
NOT_HERE: dict[str, tuple[Any, ...]] = {"stop": (), "stream_options": ()} | NOT_BESIDES_CHATS
"""Fields of generation that a message does not have."""

RENAMED: Renames = (
    (r"messages\[\d+\](\.[\w.\[\]]+)?", "messages"),
    (r"max_completion_tokens", "max_tokens"),
    (r"stop(?=$|[\[: ])", "stop_sequences"),
    (r"(tools\[\d+\])\.function\.parameters\b", r"\1.input_schema"),
    (r"(tools\[\d+\])\.function\b", r"\1"),
    (r"tool_choice\.function\b", "tool_choice"),
    (r"parallel_tool_calls\b", "tool_choice.disable_parallel_tool_use"),
    (r"response_format\.json_schema\b", "output_config.format"),
    (r"response_format\b", "output_config.format"),
    (r"reasoning_effort\b", "output_config.effort"),
    (r"thinking_token_budget\b", "thinking.budget_tokens"),
)
"""Fields of the chat request as those of a message, in paths."""


class Tool(BaseModel):
    """A tool that the model may use."""

    model_config = STRICT

    type: str | None = None
    """Only `custom`, the default: tools of Anthropic's own are not built."""
    name: Text
    """The tool's name."""
    description: Text | None = None
    """What it does, for the model."""
    input_schema: dict[str, Any]
    """The JSON schema of its input."""
    strict: bool | None = None
    """The input follows the schema."""


class ToolChoice(BaseModel):
    """Which tools the model uses."""

    model_config = STRICT

    type: Literal["auto", "any", "tool", "none"]
    """`auto`: any number of calls; `any`: at least one; `tool`: the one of `name`; `none`: none."""
    name: Text | None = None
    """The tool, with `type: tool`."""
    disable_parallel_tool_use: bool | None = False
    """At most one tool in a turn."""


class Thinking(BaseModel):
    """Whether the model thinks before it answers."""

    model_config = STRICT

    type: Literal["enabled", "disabled", "adaptive"]
    """`adaptive` is the model's own default."""
    budget_tokens: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """With `type: enabled`: most tokens of thoughts, then the answer begins. No effect on a model that does not think
    between tags."""
    display: Literal["summarized", "omitted"] | None = None
    """Only `summarized`: thoughts are sent in full."""


class OutputFormat(BaseModel):
    """The form of the answer's text."""

    model_config = STRICT

    type: Literal["json_schema"]
    """The only kind."""
    schema_: dict[str, Any] = Field(alias="schema")
    """The JSON schema."""


class OutputConfig(BaseModel):
    """The answer."""

    model_config = STRICT

    format: OutputFormat | None = None
    """Its form. Default: text."""
    effort: Text | None = None
    """As `reasoning_effort` of a chat."""


class PromptRequest(GenerationRequest):
    """The fields of a message's prompt."""

    not_built: ClassVar[dict[str, tuple[Any, ...]]] = NOT_BUILT

    messages: Annotated[list[Message], Field(fail_fast=True, min_length=1, max_length=MAX_MESSAGES)]
    """The conversation."""
    system: Text | Annotated[list[SystemBlock], Field(fail_fast=True, max_length=MAX_MESSAGES)] | None = None
    """The system's turn, before all others."""
    tools: Annotated[list[Tool], Field(fail_fast=True, max_length=MAX_TOOLS)] | None = None
    """Tools that the model may use."""
    tool_choice: ToolChoice | None = None
    """Which of them it uses. Default: `auto`."""
    thinking: Thinking | None = None
    """Whether the model thinks before it answers, where its chat template has a switch. No effect
    elsewhere."""
    output_config: OutputConfig | None = None
    """The form of the answer's text, and the effort of its thoughts."""
    chat_template_kwargs: dict[Text, Any] | None = None
    """As of a chat: variables of the model's chat template. One that is set here counts before `thinking`."""
    service_tier: Literal["auto", "standard_only"] | None = None
    """There is one tier, `standard`, which is what both ask for."""
    metadata: dict[str, Any] | None = None
    """No effect."""

    def take_ignored(self) -> Ignored:
        """The names of the fields that were sent and have no effect. ApiError 400 for fields that are not built, or
        that do not go together.
        """
        ignored: Ignored = {}
        take_unknown(self, self.not_built, "", "", ignored)
        for name in WITHOUT_EFFECT:
            if getattr(self, name) is not None:
                ignored[name] = None
                setattr(self, name, None)
        refuse_absent(self, NOT_HERE, {"stop": "stop_sequences"})
        for number, block in enumerate(self.system if isinstance(self.system, list) else ()):
            take_unknown(block, {}, f"system[{number}].", "system[].", ignored)
        for at, turn in enumerate(self.messages):
            turn.take_ignored(at, ignored)
        self._take_tools(ignored)
        self._take_thinking(ignored)
        return ignored

    def _take_tools(self, ignored: Ignored) -> None:
        for at, tool in enumerate(self.tools or ()):
            if tool.type not in (None, "custom"):
                message = f"tools[{at}] of type {shown(str(tool.type))} is not built; send tools with an input_schema"
                raise invalid(message, param=f"tools[{at}].type", code="unsupported_parameter")
            take_unknown(tool, TOOL_NOT_BUILT, f"tools[{at}].", "tools[].", ignored)
        if self.tool_choice is not None:
            take_unknown(self.tool_choice, {}, "tool_choice.", "tool_choice.", ignored)
            if self.tool_choice.type == "tool" and self.tool_choice.name is None:
                message = "tool_choice.name is missing; type tool needs it"
                raise invalid(message, param="tool_choice.name", code="missing_required_parameter")

    def _take_thinking(self, ignored: Ignored) -> None:
        if self.thinking is not None:
            take_unknown(self.thinking, {}, "thinking.", "thinking.", ignored)
            if self.thinking.display == "omitted":
                message = 'thinking.display "omitted" is not built; thoughts are sent in full'
                raise invalid(message, param="thinking.display", code="unsupported_parameter")
        if self.output_config is not None:
            take_unknown(self.output_config, {}, "output_config.", "output_config.", ignored)
            if self.output_config.format is not None:
                take_unknown(self.output_config.format, {}, "output_config.format.", "output_config.format.", ignored)

    def chat(self, switch: ReasoningSwitch, max_tokens: int | None, stops: list[str] | None) -> dict[str, Any]:
        """The body of the chat that answers this conversation."""
        body = {name: value for name in SHARED if (value := getattr(self, name)) is not None}
        system = [] if self.system is None else [{"role": "system", "content": text_of(self.system)}]
        turns = [turn for message in self.messages for turn in message.turns()]
        choice, form = self.tool_choice, self.output_config and self.output_config.format
        more = {
            "messages": [*system, *turns],
            "model": self.model,
            "max_completion_tokens": max_tokens,
            "stop": stops or None,
            "tools": [_function(tool) for tool in self.tools or ()] or None,
            "tool_choice": _choice(choice) if choice else None,
            "parallel_tool_calls": False if choice and choice.disable_parallel_tool_use else None,
            "continue_final_message": True if _is_prefill(turns[-1]) else None,
            "response_format": _response_format(form) if form else None,
            "reasoning_effort": self._effort(switch),
            "thinking_token_budget": self._budget(switch),
            "chat_template_kwargs": self._variables(switch),
        }
        return body | {name: value for name, value in more.items() if value is not None}

    def _effort(self, switch: ReasoningSwitch) -> str | None:
        if not switch.has_effect:
            return None
        if self.thinking is not None and self.thinking.type == "disabled":
            return "none"
        return self.output_config.effort if self.output_config else None

    def _budget(self, switch: ReasoningSwitch) -> int | None:
        thinking = self.thinking
        return thinking.budget_tokens if thinking and thinking.type == "enabled" and switch.limits else None

    def _variables(self, switch: ReasoningSwitch) -> dict[str, Any] | None:
        """What the request sets, and thinking that is enabled, for templates that leave it out by default."""
        enabled = self.thinking is not None and self.thinking.type == "enabled"
        thinks = {str(switch.variable): True} if enabled and switch.variable in SWITCHES else {}
        return thinks | (self.chat_template_kwargs or {}) or None

    def take_without_effect(self, switch: ReasoningSwitch, ignored: Ignored) -> None:
        """Adds what has no effect on this model to `ignored`: all about thoughts, where its template has no switch."""
        budget = self.thinking.budget_tokens if self.thinking is not None else None
        if budget is not None and self._budget(switch) is None:
            ignored["thinking.budget_tokens"] = None
        if not switch.has_effect:
            neutral = ("adaptive",) if switch.reasons else ("adaptive", "disabled")
            if self.thinking is not None and self.thinking.type not in neutral:
                ignored["thinking"] = None
            if self.output_config is not None and self.output_config.effort is not None:
                ignored["output_config.effort"] = None
        blocks = (block for turn in self.messages if isinstance(turn.content, list) for block in turn.content)
        if not switch.keeps and any(isinstance(block, ThinkingBlock) for block in blocks):
            ignored["messages[].content[].thinking"] = None


class MessagesRequest(PromptRequest):
    """POST /v1/messages."""

    max_tokens: MaxTokens
    """Most tokens of the answer."""
    stop_sequences: Annotated[list[StopString], Field(max_length=MAX_STOPS, fail_fast=True)] | None = None
    """The answer ends before the first of these strings."""


class CountRequest(PromptRequest):
    """POST /v1/messages/count_tokens."""


WITHOUT_EFFECT = (
    "metadata", "service_tier", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
)  # fmt: skip
TOOL_NOT_BUILT: dict[str, tuple[Any, ...]] = {
    "defer_loading": (False,),
    "allowed_callers": (["direct"],),
    "input_examples": ([],),
}
"""Fields of tools that a prompt would have to hold."""
SHARED = tuple(name for name in OF_GENERATION if name != "stop")
"""Fields that a chat has by the same names."""


def _is_prefill(turn: dict[str, Any]) -> bool:
    """Whether the answer goes on with the text of the last turn."""
    return turn["role"] == "assistant" and "tool_calls" not in turn


def _function(tool: Tool) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input_schema,
        "strict": tool.strict,
    }
    return {"type": "function", "function": {name: value for name, value in function.items() if value is not None}}


def _choice(choice: ToolChoice) -> str | dict[str, Any]:
    if choice.type == "tool":
        return {"type": "function", "function": {"name": choice.name}}
    return "required" if choice.type == "any" else choice.type


def _response_format(form: OutputFormat) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "output", "schema": form.schema_}}
