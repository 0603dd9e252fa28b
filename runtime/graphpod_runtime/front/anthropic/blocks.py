"""Content blocks of messages, as clients send them, and as turns of a chat."""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from graphpod_runtime.front.openai.fields import STRICT, Text, why_unwritable
from graphpod_runtime.front.openai.unbuilt_fields import Ignored, take_unknown
from graphpod_runtime.front.requests.errors import invalid, shown

Turn = dict[str, Any]
"""A message of a chat, in the form of the chat API."""
MAX_BLOCKS = 8192
"""Of one message."""


class TextBlock(BaseModel):
    """Text."""

    model_config = STRICT

    type: Literal["text"]
    """The kind of block."""
    text: Text
    """Blocks are joined without a space."""
    citations: list[Any] | None = None
    """No effect. What an answer had may be sent back."""


class ToolUseBlock(BaseModel):
    """A tool that the assistant used in an earlier turn."""

    model_config = STRICT

    type: Literal["tool_use"]
    """The kind of block."""
    id: Text
    """The use's id."""
    name: Text
    """The tool."""
    input: dict[str, Any]
    """What the tool was given."""


class ToolResultBlock(BaseModel):
    """What a tool answered."""

    model_config = STRICT

    type: Literal["tool_result"]
    """The kind of block."""
    tool_use_id: Text
    """The use that it answers."""
    content: Text | Annotated[list[Annotated[TextBlock, BeforeValidator(lambda block: _built(block, ("text",)))]],
                              Field(fail_fast=True, max_length=MAX_BLOCKS)] | None = None  # fmt: skip
    """The answer's text."""
    is_error: bool | None = None
    """No effect: the answer's text says what failed."""


class ThinkingBlock(BaseModel):
    """What the assistant thought in an earlier turn."""

    model_config = STRICT

    type: Literal["thinking"]
    """The kind of block."""
    thinking: Text
    """The thoughts, for templates that read them; else without effect."""
    signature: str | None = None
    """No effect: thoughts are not signed."""


def _kind(block: Any) -> str:
    kind = block.get("type") if isinstance(block, dict) else getattr(block, "type", None)
    return f"@{kind}"


def _built(block: Any, kinds: tuple[str, ...]) -> Any:
    """Refuses another kind of block by its name."""
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str):
        raise PydanticCustomError("model_type", "must be an object with a type and its fields")
    if kind not in kinds:
        message = "{kind} blocks are not built here; send blocks of type {kinds}"
        raise PydanticCustomError("not_built", message, {"kind": shown(kind), "kinds": ", ".join(kinds)})
    return block


KINDS = ("text", "tool_use", "tool_result", "thinking")
Block = Annotated[
    Annotated[TextBlock, Tag("@text")]
    | Annotated[ToolUseBlock, Tag("@tool_use")]
    | Annotated[ToolResultBlock, Tag("@tool_result")]
    | Annotated[ThinkingBlock, Tag("@thinking")],
    Discriminator(_kind),
    BeforeValidator(lambda block: _built(block, KINDS)),
]
"""Tags of kinds begin with a sign that no field has, so that errors leave them out of a field's path."""
SystemBlock = Annotated[TextBlock, BeforeValidator(lambda block: _built(block, ("text",)))]
NOT_BUILT: dict[str, tuple[Any, ...]] = {"caller": ({"type": "direct"},), "toolset_name": ()}
"""Fields of blocks that a prompt would have to hold."""
OF_ROLE = {"tool_use": "assistant", "thinking": "assistant", "tool_result": "user"}
"""Kinds that one role alone has."""


class Message(BaseModel):
    """One turn of a conversation."""

    model_config = STRICT

    role: Literal["user", "assistant", "system"]
    """Who speaks. A last turn of `assistant` is continued."""
    content: Text | Annotated[list[Block], Field(fail_fast=True, max_length=MAX_BLOCKS)]
    """Text, or blocks."""

    def take_ignored(self, at: int, ignored: Ignored) -> None:
        """Adds the names of unknown fields to `ignored`, and forgets them. ApiError 400 for a field that the prompt
        would have to hold, and for a block that belongs to another role; `at` is the turn's index.
        """
        take_unknown(self, {}, f"messages[{at}].", "messages[].", ignored)
        for number, block in enumerate(self.content if isinstance(self.content, list) else ()):
            where = f"messages[{at}].content[{number}]"
            if OF_ROLE.get(block.type, self.role) != self.role:
                role = OF_ROLE[block.type]
                raise invalid(f"{where}: {block.type} blocks belong to a turn of role {role!r}", param=where)
            take_unknown(block, NOT_BUILT, f"{where}.", "messages[].content[].", ignored)
            if isinstance(block, ToolUseBlock) and (why := why_unwritable(block.input)) is not None:
                raise invalid(f"{where}.input {why}", param=f"{where}.input")
            if isinstance(block, ToolResultBlock):
                if block.is_error:
                    ignored["messages[].content[].is_error"] = None
                for inner, part in enumerate(block.content if isinstance(block.content, list) else ()):
                    within = "messages[].content[].content[]."
                    take_unknown(part, {}, f"{where}.content[{inner}].", within, ignored)

    def turns(self) -> list[Turn]:
        """The turn as messages of a chat: each tool's answer is one of its own, before the user's text."""
        if isinstance(self.content, str):
            return [{"role": self.role, "content": self.content}]
        texts = [block.text for block in self.content if isinstance(block, TextBlock)]
        if self.role == "assistant":
            return [self._assistants(texts)]
        answers = [
            {"role": "tool", "tool_call_id": block.tool_use_id, "content": text_of(block.content or "")}
            for block in self.content
            if isinstance(block, ToolResultBlock)
        ]
        return [*answers, {"role": self.role, "content": "".join(texts)}] if texts or not answers else answers

    def _assistants(self, texts: list[str]) -> Turn:
        calls = [
            {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": json.dumps(block.input)}}
            for block in self.content
            if isinstance(block, ToolUseBlock)
        ]
        thoughts = "".join(block.thinking for block in self.content if isinstance(block, ThinkingBlock))
        turn: Turn = {"role": "assistant", "content": "".join(texts) if texts or not calls else None}
        more = {"tool_calls": calls, "reasoning_content": thoughts}
        return turn | {name: value for name, value in more.items() if value}


def text_of(content: str | list[TextBlock]) -> str:
    """The text of blocks."""
    return content if isinstance(content, str) else "".join(block.text for block in content)
