"""The tools of a request, and which of them its answer calls."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from graphpod_runtime.front.openai.fields import STRICT, Text, depth_fits
from graphpod_runtime.front.openai.unbuilt_fields import Ignored, take_unknown
from graphpod_runtime.front.requests.errors import invalid, shown

MAX_TOOLS = 128
MAX_TOOLS_BYTES = 1 << 20
"""Bytes of all tools of a request as JSON."""
MAX_TOOL_DEPTH = 32
"""Levels of lists and objects in a tool's parameters."""

ToolName = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.:/-]+$")]


class FunctionDefinition(BaseModel):
    """A function that the model may call."""

    model_config = STRICT

    name: ToolName
    """Letters, digits, `_`, `-`, `.`, `:` and `/`. No two tools have the same."""
    description: Text | None = None
    """What it does, for the model."""
    parameters: dict[str, Any] | None = None
    """A JSON schema of type object. Default: no parameters."""
    strict: bool | None = None
    """true: calls fit the schema with `tool_choice: "auto"`, too. Calls that `tool_choice` forces always do."""


class Tool(BaseModel):
    """A tool of a request."""

    model_config = STRICT

    type: Literal["function"] = "function"
    """The only kind of tool."""
    function: FunctionDefinition
    """The function."""

    @property
    def schema_of_parameters(self) -> dict[str, Any]:
        """The schema of its arguments. As OpenAI has it, a function without `parameters` has none."""
        if self.function.parameters is None:
            return {"type": "object", "properties": {}, "additionalProperties": False}
        return self.function.parameters or {"type": "object", "properties": {}}

    def plain(self) -> dict[str, Any]:
        """What a chat template reads."""
        function: dict[str, Any] = {"name": self.function.name}
        if self.function.description is not None:
            function["description"] = self.function.description
        return {"type": "function", "function": function | {"parameters": self.schema_of_parameters}}


class FunctionName(BaseModel):
    """A function by its name."""

    model_config = STRICT

    name: Text
    """One of the request's tools."""


class NamedTool(BaseModel):
    """A tool by its function's name."""

    model_config = STRICT

    type: Literal["function"]
    """The only kind of tool."""
    function: FunctionName
    """The function."""


class AllowedTools(BaseModel):
    """Some of the request's tools."""

    model_config = STRICT

    mode: Literal["auto", "required"]
    """Whether the answer must call one."""
    tools: Annotated[list[NamedTool], Field(min_length=1, max_length=MAX_TOOLS, fail_fast=True)]
    """Those that it may call."""


class AllowedChoice(BaseModel):
    """`tool_choice` of type allowed_tools."""

    model_config = STRICT

    type: Literal["allowed_tools"]
    """The model is limited to some of the tools."""
    allowed_tools: AllowedTools
    """The model sees these tools only."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The tools that an answer may call, at least one."""

    tools: tuple[Tool, ...]
    mode: Literal["auto", "none", "required"]
    named: str | None = None
    """The one that it must call; `mode` is `required`."""
    parallel: bool = True
    """Whether it may call several."""


class ToolFields(BaseModel):
    """The fields of a conversation's tools, for a request to have."""

    model_config = STRICT

    tools: Annotated[list[Tool], Field(fail_fast=True, min_length=1, max_length=MAX_TOOLS)] | None = None
    """Functions that the model may call. [Tools](../how-to/tools.md) has examples."""

    def take_ignored_of_tools(self, ignored: Ignored) -> None:
        """Adds the unknown fields within the tools. ApiError 400 for tools that are too large, or two of one name."""
        if not self.tools:
            return
        for at, tool in enumerate(self.tools):
            take_unknown(tool, {}, f"tools[{at}].", "tools[].", ignored)
            take_unknown(tool.function, {}, f"tools[{at}].function.", "tools[].function.", ignored)
            _check_parameters(tool.function.parameters, f"tools[{at}].function.parameters")
        [(name, times)] = Counter(tool.function.name for tool in self.tools).most_common(1)
        if times > 1:
            raise invalid(f"tools: {times} tools have the name {shown(name)!r}; give each another", param="tools")
        try:
            size = len(json.dumps([tool.plain() for tool in self.tools], allow_nan=False, ensure_ascii=False).encode())
        except UnicodeEncodeError as error:
            raise invalid("tools: holds half a surrogate pair; send whole characters", param="tools") from error
        except ValueError as error:
            raise invalid(f"tools: a number is not JSON: {error}", param="tools") from error
        if size > MAX_TOOLS_BYTES:
            raise invalid(f"tools take {size} bytes as JSON; at most {MAX_TOOLS_BYTES} are read", param="tools")


class ToolChoiceFields(ToolFields):
    """And those of what the answer does with them."""

    tool_choice: Literal["none", "auto", "required"] | NamedTool | AllowedChoice | None = None
    """none: text; auto: text or calls; required: calls; or an object that names one tool or several. Default: auto with
    `tools`."""
    parallel_tool_calls: bool | None = None
    """false: at most one call. Default: true."""

    def take_ignored_of_tools(self, ignored: Ignored) -> None:
        """And those within the choice."""
        super().take_ignored_of_tools(ignored)
        match self.tool_choice:
            case NamedTool() as one:
                _take_unknown_of(one, "tool_choice.", ignored)
            case AllowedChoice() as choice:
                take_unknown(choice, {}, "tool_choice.", "tool_choice.", ignored)
                at = "tool_choice.allowed_tools."
                take_unknown(choice.allowed_tools, {}, at, at, ignored)
                for one in choice.allowed_tools.tools:
                    _take_unknown_of(one, f"{at}tools[].", ignored)

    @property
    def tool_use(self) -> ToolUse | None:
        """None without tools. ApiError 400 for a choice of a tool that is not there."""
        choice, parallel = self.tool_choice, self.parallel_tool_calls is not False
        if not self.tools:
            if choice in (None, "none", "auto"):
                return None
            raise invalid("tool_choice is only allowed with tools; send both", param="tool_choice")
        tools = {tool.function.name: tool for tool in self.tools}
        match choice:
            case NamedTool(function=function):
                _check_name(function.name, tools, "tool_choice.function.name")
                use = ToolUse(tuple(self.tools), "required", function.name, parallel)
            case AllowedChoice(allowed_tools=allowed):
                for at, one in enumerate(allowed.tools):
                    _check_name(one.function.name, tools, f"tool_choice.allowed_tools.tools[{at}].function.name")
                names = {one.function.name for one in allowed.tools}
                use = ToolUse(tuple(tools[name] for name in tools if name in names), allowed.mode, None, parallel)
            case _:
                use = ToolUse(tuple(self.tools), choice or "auto", None, parallel)
        return use


def _take_unknown_of(one: NamedTool, at: str, ignored: Ignored) -> None:
    take_unknown(one, {}, at, at, ignored)
    take_unknown(one.function, {}, f"{at}function.", f"{at}function.", ignored)


def _check_name(name: str, tools: dict[str, Tool], param: str) -> None:
    if name not in tools:
        known = ", ".join(list(tools)[:8]) + (", …" if len(tools) > 8 else "")
        raise invalid(f"{param}: no tool has the name {shown(name)!r}; tools has: {known}", param=param)


def _check_parameters(schema: dict[str, Any] | None, param: str) -> None:
    if schema is None:
        return
    if schema.get("type", "object") != "object":
        raise invalid(f'{param}.type must be "object": arguments have names', param=param)
    if not depth_fits(schema, MAX_TOOL_DEPTH):
        raise invalid(f"{param} is nested more than {MAX_TOOL_DEPTH} levels deep", param=param)
