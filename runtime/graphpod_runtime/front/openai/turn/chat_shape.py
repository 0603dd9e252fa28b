"""An assistant's turn in the shapes of chat completions."""

from collections.abc import Iterable, Sequence

from msgspec import UNSET

from graphpod_runtime.front.openai.reply import (
    ChatDelta,
    ChatMessage,
    FunctionCalled,
    FunctionDelta,
    ToolCallDelta,
    ToolCalled,
)
from graphpod_runtime.front.text.turn.parts import CallArguments, CallBegun, Content, Part, Reasoning, joined


def message_of(parts: Iterable[Part]) -> ChatMessage:
    """The whole turn as a message. Content is null where calls or reasoning are all there is."""
    turn = joined(parts)
    calls = [ToolCalled(call.id, FunctionCalled(call.name, call.arguments)) for call in turn.calls]
    reasoning = turn.reasoning or UNSET
    content = turn.content if turn.content or not (calls or reasoning) else None
    return ChatMessage(content, reasoning=reasoning, reasoning_content=reasoning, tool_calls=calls or UNSET)


def deltas_of(parts: Sequence[Part]) -> list[ChatDelta]:
    """What is new in a turn, one delta or more: none has two entries of calls, which clients that join entries by their
    index would take for two calls. Of each other field a delta has its text in order.
    """
    deltas: list[list[Part]] = [[]]
    for part in parts:
        if isinstance(part, _OF_CALLS) and any(isinstance(one, _OF_CALLS) for one in deltas[-1]):
            deltas.append([])
        deltas[-1].append(part)
    return [_delta_of(delta) for delta in deltas]


def _delta_of(parts: Sequence[Part]) -> ChatDelta:
    content = "".join(part.text for part in parts if isinstance(part, Content))
    reasoning = "".join(part.text for part in parts if isinstance(part, Reasoning)) or None
    return ChatDelta(
        content=content or (None if parts else ""),
        reasoning=reasoning,
        reasoning_content=reasoning,
        tool_calls=[_call_delta(part) for part in parts if isinstance(part, _OF_CALLS)] or None,
    )


_OF_CALLS = (CallBegun, CallArguments)


def _call_delta(part: CallBegun | CallArguments) -> ToolCallDelta:
    if isinstance(part, CallBegun):
        return ToolCallDelta(part.index, part.id, "function", FunctionDelta(part.name, ""))
    return ToolCallDelta(part.index, function=FunctionDelta(arguments=part.text))
