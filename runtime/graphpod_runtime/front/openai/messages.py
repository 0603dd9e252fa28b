"""The turns of a conversation, as clients send them and as chat templates read them."""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from graphpod_runtime.front.openai.fields import (
    MAX_DEPTH,
    MAX_TOOL_CALLS,
    MAX_VARIABLES,
    STRICT,
    Text,
    depth_fits,
    takes_more,
    why_unwritable,
)
from graphpod_runtime.front.openai.turn.tool_fields import ToolFields
from graphpod_runtime.front.openai.unbuilt_fields import MESSAGE_NOT_BUILT, Ignored, take_unknown
from graphpod_runtime.front.requests.errors import invalid, shown
from graphpod_runtime.front.text.chat_template import Ending


def _text_alone(kind: Any) -> Any:
    """Refuses another kind of part by its name."""
    if isinstance(kind, str) and kind != "text":
        message = "{kind} parts are not built; send parts of type text"
        raise PydanticCustomError("not_built", message, {"kind": shown(kind)})
    return kind


REASONING = ("reasoning_content", "reasoning", "thinking")
"""Names that templates have for an earlier turn's reasoning."""
ROLES = {
    "tool_calls": "assistant",
    "tool_call_id": "tool",
    "reasoning": "assistant",
    "reasoning_content": "assistant",
}
"""Fields of a turn that one role alone has."""


class TextPart(BaseModel):
    """The one kind of content part that a text model reads."""

    model_config = STRICT

    type: Annotated[Literal["text"], BeforeValidator(_text_alone)]
    """The only kind of part."""
    text: Text
    """Parts are joined without a space."""


class FunctionCall(BaseModel):
    """A function and its arguments: JSON, in a string."""

    model_config = STRICT

    name: Text
    """The function."""
    arguments: Text
    """JSON, in a string."""


class ToolCall(BaseModel):
    """What an assistant asked for in an earlier turn."""

    model_config = STRICT

    id: Text
    """The call's id."""
    type: Literal["function"] = "function"
    """The only kind of call."""
    function: FunctionCall
    """The call."""

    def plain(self, where: str) -> dict[str, Any]:
        """What a chat template reads: arguments as an object, as templates expect them, where they are one."""
        try:
            arguments = json.loads(self.function.arguments or "{}")
        except (ValueError, RecursionError):
            arguments = None
        if (why := why_unwritable(arguments)) is not None:
            field = f"{where}.function.arguments"
            raise invalid(f"{field} {why}", param=field)
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
    """Null is no text. Required, except in an assistant's turn."""
    name: Text | None = None
    """The speaker's name, for templates that read it."""
    tool_calls: Annotated[list[ToolCall], Field(fail_fast=True, max_length=MAX_TOOL_CALLS)] | None = None
    """Calls of an earlier assistant's turn, for templates that read them."""
    tool_call_id: Text | None = None
    """The call that a turn of role `tool` answers."""
    reasoning_content: Text | None = None
    """Reasoning of an earlier assistant's turn, for templates that read it; else without effect."""
    reasoning: Text | None = None
    """The same, by vLLM's newer name."""

    def take_unknown(self, at: int, ignored: Ignored) -> None:
        """Adds the names of the turn's unknown fields to `ignored`, and forgets them. ApiError 400 for a field that
        the prompt would have to hold; `at` is the turn's index.
        """
        # Clients send back what an answer had, empty where there was nothing.
        for name in [name for name, value in (self.model_extra or {}).items() if value == []]:
            (self.model_extra or {}).pop(name)
        take_unknown(self, MESSAGE_NOT_BUILT, f"messages[{at}].", "messages[].", ignored)
        for number, part in enumerate(self.content if isinstance(self.content, list) else ()):
            take_unknown(part, {}, f"messages[{at}].content[{number}].", "messages[].content[].", ignored)
        for number, call in enumerate(self.tool_calls or ()):
            where, within = f"messages[{at}].tool_calls[{number}].", "messages[].tool_calls[]."
            take_unknown(call, {}, where, within, ignored)
            take_unknown(call.function, {}, f"{where}function.", f"{within}function.", ignored)

    def plain(self, at: int) -> dict[str, Any]:
        """What a chat template reads. ApiError 400 for a field that is missing or of another role; `at` is the turn's
        index.
        """
        for name, role in ROLES.items():
            if getattr(self, name) and self.role != role:
                raise invalid(
                    f"messages[{at}].{name} belongs to a turn of role {role!r}", param=f"messages[{at}].{name}"
                )
        if self.role != "assistant" and "content" not in self.model_fields_set:
            raise invalid(
                f"messages[{at}].content is missing; only an assistant's turn may be without",
                param=f"messages[{at}].content",
                code="missing_required_parameter",
            )
        # OpenAI renamed the system role for its newer models; templates know the old word.
        turn: dict[str, Any] = {"role": "system" if self.role == "developer" else self.role, "content": self._text}
        if self.tool_calls:
            calls = enumerate(self.tool_calls)
            turn["tool_calls"] = [call.plain(f"messages[{at}].tool_calls[{number}]") for number, call in calls]
        reasoning = self.reasoning_content or self.reasoning or None
        more = {"name": self.name, "tool_call_id": self.tool_call_id} | dict.fromkeys(REASONING, reasoning)
        return turn | {name: value for name, value in more.items() if value is not None}

    @property
    def characters(self) -> int:
        """About as many as its text has in a prompt."""
        functions = [call.function for call in self.tool_calls or ()]
        return len(self._text or "") + sum(len(one.name) + len(one.arguments) for one in functions)

    @property
    def _text(self) -> str | None:
        """The content's parts joined; templates tell a turn of tool calls by its None."""
        if self.content is None:
            return None if self.tool_calls else ""
        return "".join(part.text for part in self.content) if isinstance(self.content, list) else self.content


class Conversation(ToolFields):
    """Turns, and how a chat template writes them."""

    model_config = STRICT

    messages: list[Message]
    """The conversation."""
    chat_template_kwargs: dict[Text, Any] | None = None
    """Variables of the model's chat template (`enable_thinking`); one that it does not read is refused.
    A model that does not reason takes `enable_thinking: false`."""
    add_generation_prompt: bool | None = None
    """End the prompt with the beginning of an assistant's turn. Default: true, without `continue_final_message`."""
    continue_final_message: bool | None = False
    """Go on with the text of the last message; not with `add_generation_prompt: true`."""
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    """For templates that read `reasoning_effort`. For those that read `enable_thinking` or `thinking` instead, `none`
    is false and all others are true. Other templates refuse it with 400."""

    @property
    def variables(self) -> dict[str, Any]:
        """What the chat template reads besides messages (`enable_thinking`). ApiError 400 when it is too large."""
        found = self.chat_template_kwargs or {}
        field = "chat_template_kwargs"
        if takes_more(found, MAX_VARIABLES):
            raise invalid(f"{field} takes more than {MAX_VARIABLES} bytes as JSON; send less", param=field)
        if not depth_fits(found):
            raise invalid(f"{field} is nested more than {MAX_DEPTH} levels deep", param=field)
        try:
            size = len(json.dumps(found, allow_nan=False, ensure_ascii=False).encode())
        except UnicodeEncodeError as error:
            raise invalid(f"{field} holds half a surrogate pair; send whole characters", param=field) from error
        except ValueError as error:  # NaN
            raise invalid(f"{field} is not JSON: {error}", param=field) from error
        if size > MAX_VARIABLES:
            raise invalid(f"{field} takes more than {MAX_VARIABLES} bytes as JSON; send less", param=field)
        return found

    def take_ignored_of_messages(self, ignored: Ignored) -> None:
        """Adds the names of unknown fields of the turns and tools to `ignored`. ApiError 400 as `Message.take_unknown`
        and `take_ignored_of_tools`.
        """
        self.take_ignored_of_tools(ignored)
        for at, message in enumerate(self.messages or ()):
            message.take_unknown(at, ignored)

    @property
    def reasoning_fields(self) -> list[str]:
        """Those of the turns that hold reasoning."""
        sent = [name for name in REASONING if any(getattr(turn, name, None) for turn in self.messages or ())]
        return [f"messages[].{name}" for name in sent]

    @property
    def ending(self) -> Ending:
        """How the prompt ends. ApiError 400 for two ends."""
        if self.continue_final_message and self.add_generation_prompt:
            message = "continue_final_message and add_generation_prompt are both true; set one of them to false"
            raise invalid(message, param="continue_final_message")
        if self.continue_final_message:
            return Ending.LastMessage
        return Ending.Turn if self.add_generation_prompt is False else Ending.Assistant
