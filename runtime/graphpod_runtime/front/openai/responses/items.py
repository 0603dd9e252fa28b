"""The input items of a response, as clients send them, and as turns of a chat."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from graphpod_runtime.front.openai.fields import STRICT, SentBack, Text
from graphpod_runtime.front.openai.responses.reply import FunctionCallItem, OutputItem, OutputMessage
from graphpod_runtime.front.openai.unbuilt_fields import Ignored, take_unknown
from graphpod_runtime.front.requests.errors import shown

Turn = dict[str, Any]
"""A message of a chat, in the form of the chat API."""
STATUS = Literal["in_progress", "completed", "incomplete"]
MAX_PARTS = 8192
"""Of one item."""


def _of(kinds: dict[str, str]) -> BeforeValidator:
    """Refuses another kind of part by its name; `kinds` are those that are built, and what to say."""

    def known(part: Any) -> Any:
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind not in kinds:
            message = "{kind} parts are not built; send parts of type {kinds}"
            raise PydanticCustomError("not_built", message, {"kind": shown(kind), "kinds": " or ".join(kinds)})
        return part

    return BeforeValidator(known)


class TextPart(BaseModel):
    """Text of a message, or of a function's answer."""

    model_config = STRICT

    type: Literal["input_text", "output_text", "text"]
    """`input_text`, and in an assistant's turn `output_text`."""
    text: Text
    """Parts are joined without a space."""
    annotations: SentBack | None = None
    """No effect. What an answer had may be sent back."""
    logprobs: SentBack | None = None
    """No effect."""


class ReasoningPart(BaseModel):
    """Text of a reasoning item."""

    model_config = STRICT

    type: Literal["reasoning_text"]
    """The only kind."""
    text: Text
    """What the model thought."""


TextContent = (
    Text
    | Annotated[
        list[Annotated[TextPart, _of({"input_text": "", "output_text": "", "text": ""})]],
        Field(fail_fast=True, max_length=MAX_PARTS),
    ]
)


class MessageItem(BaseModel):
    """A turn of text."""

    model_config = STRICT

    type: Literal["message"] = "message"
    """May be left out."""
    role: Literal["system", "developer", "user", "assistant"]
    """The chat template reads `developer` as `system`."""
    content: TextContent
    """The turn's text."""
    id: Text | None = None
    """No effect. What an answer had may be sent back."""
    status: STATUS | None = None
    """No effect."""
    phase: Literal["commentary", "final_answer"] | None = None
    """No effect."""


class FunctionCall(BaseModel):
    """A call that the assistant made in an earlier turn."""

    model_config = STRICT

    type: Literal["function_call"]
    """The kind of item."""
    call_id: Text
    """The call's id."""
    name: Text
    """The function."""
    arguments: Text
    """JSON, in a string."""
    id: Text | None = None
    """No effect."""
    status: STATUS | None = None
    """No effect."""


class FunctionCallOutput(BaseModel):
    """What a function answered."""

    model_config = STRICT

    type: Literal["function_call_output"]
    """The kind of item."""
    call_id: Text
    """The call that it answers."""
    output: TextContent
    """The function's answer."""
    id: Text | None = None
    """No effect."""
    status: STATUS | None = None
    """No effect."""


class ReasoningItem(BaseModel):
    """What the assistant thought before an earlier turn."""

    model_config = STRICT

    type: Literal["reasoning"]
    """The kind of item."""
    content: Annotated[list[ReasoningPart], Field(fail_fast=True, max_length=MAX_PARTS)] | None = None
    """The thoughts, for templates that read them; else without effect."""
    summary: SentBack | None = None
    """No effect: the thoughts are sent in full."""
    id: Text | None = None
    """No effect."""
    status: STATUS | None = None
    """No effect."""


def _kind(item: Any) -> str:
    kind = item.get("type") if isinstance(item, dict) else getattr(item, "type", None)
    return f"@{kind or 'message'}"


def _built(item: Any) -> Any:
    """Refuses another kind of item by its name."""
    kind = item.get("type") if isinstance(item, dict) else None
    if isinstance(kind, str) and kind not in KINDS:
        message = "{kind} items are not built; send items of type {kinds}"
        raise PydanticCustomError("not_built", message, {"kind": shown(kind), "kinds": ", ".join(KINDS)})
    if not isinstance(item, dict) or (kind is not None and not isinstance(kind, str)):
        raise PydanticCustomError("model_type", "must be an object with a type and its fields")
    return item


Item = Annotated[
    Annotated[MessageItem, Tag("@message")]
    | Annotated[FunctionCall, Tag("@function_call")]
    | Annotated[FunctionCallOutput, Tag("@function_call_output")]
    | Annotated[ReasoningItem, Tag("@reasoning")],
    Discriminator(_kind),
    BeforeValidator(_built),
]
"""Tags of kinds begin with a sign that no field has, so that errors leave them out of a field's path."""
THOUGHTS = "input[].reasoning"
"""The name of reasoning items that have no effect."""
KINDS = ("message", "function_call", "function_call_output", "reasoning")
NOT_BUILT: dict[str, tuple[Any, ...]] = {"encrypted_content": (), "caller": (), "namespace": ("",), "async": (False,)}
"""Fields of items that a prompt would have to hold."""


def take_ignored(items: list[Any], ignored: Ignored) -> None:
    """Adds the names of unknown fields of the items to `ignored`, and forgets them. ApiError 400 for a field that the
    prompt would have to hold.
    """
    for at, item in enumerate(items):
        if isinstance(item, ReasoningItem) and not (_thoughts(item) and _goes_on(items[at + 1 : at + 2])):
            ignored[THOUGHTS] = None
        take_unknown(item, NOT_BUILT, f"input[{at}].", "input[].", ignored)
        for name in ("content", "output"):
            parts = getattr(item, name, None)
            for number, part in enumerate(parts if isinstance(parts, list) else ()):
                take_unknown(part, {}, f"input[{at}].{name}[{number}].", f"input[].{name}[].", ignored)


def _goes_on(following: list[Any]) -> bool:
    """Whether the assistant's turn goes on."""
    return any(isinstance(item, FunctionCall) or getattr(item, "role", None) == "assistant" for item in following)


def turns_of(items: list[Any]) -> list[Turn]:
    """The items as messages of a chat: what an assistant said and called in one turn is one message, as chat templates
    expect it.
    """
    turns: list[Turn] = []
    mine: Turn | None = None
    """The assistant's turn that the items before this one began."""
    for item in items:
        match item:
            case MessageItem(role="assistant"):
                if mine is None or mine["content"] is not None or "tool_calls" in mine:
                    mine = _assistant(turns)
                mine["content"] = _text(item.content)
            case FunctionCall():
                mine = mine or _assistant(turns)
                call = {"name": item.name, "arguments": item.arguments}
                mine.setdefault("tool_calls", []).append({"id": item.call_id, "type": "function", "function": call})
            case ReasoningItem():
                if thoughts := _thoughts(item):
                    mine = _assistant(turns)
                    mine["reasoning_content"] = thoughts
            case MessageItem():
                turns.append({"role": item.role, "content": _text(item.content)})
                mine = None
            case FunctionCallOutput():
                turns.append({"role": "tool", "tool_call_id": item.call_id, "content": _text(item.output)})
                mine = None
    # A thought that nothing follows is no turn.
    return [turn for turn in turns if turn["content"] is not None or "tool_calls" in turn]


def _thoughts(item: ReasoningItem) -> str:
    return "".join(part.text for part in item.content or ())


def _assistant(turns: list[Turn]) -> Turn:
    turn: Turn = {"role": "assistant", "content": None}
    turns.append(turn)
    return turn


def _text(content: str | list[TextPart]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


def answered(output: Sequence[OutputItem]) -> list[Turn]:
    """An answer's items as a turn of the chat that goes on."""
    turn: Turn = {"role": "assistant", "content": None}
    for item in output:
        match item:
            case OutputMessage():
                turn["content"] = (turn["content"] or "") + "".join(part.text for part in item.content)
            case FunctionCallItem():
                call = {"name": item.name, "arguments": item.arguments}
                turn.setdefault("tool_calls", []).append({"id": item.call_id, "type": "function", "function": call})
            case _:
                turn["reasoning_content"] = "".join(part.text for part in item.content)
    return [] if turn["content"] is None and "tool_calls" not in turn else [turn]
