"""From the parts of an assistant's turn to the blocks and events of a message.

Whole answers and streams are made by the same steps.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from graphpod_runtime.front.anthropic.reply import (
    Block,
    BlockDelta,
    BlockStart,
    BlockStop,
    Event,
    InputJsonDelta,
    Message,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    StopDelta,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolUseBlock,
    Usage,
)
from graphpod_runtime.front.openai.fields import depth_fits
from graphpod_runtime.front.openai.turn.reader import TurnPiece
from graphpod_runtime.front.text.tokenizer import REPLACEMENT
from graphpod_runtime.front.text.turn.parts import CallArguments, CallBegun, Content, Part, Reasoning

REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
"""Why a turn ended, in Anthropic's words."""
MAX_INPUT_DEPTH = 64
"""Levels of lists and objects of a tool's input. What writes the answer recurses for each."""
HALF = re.compile("[\ud800-\udfff]")
"""Half a surrogate pair."""


@dataclass(slots=True)
class _Open:
    """The block that grows: of a tool, of thoughts, or else of text."""

    call: CallBegun | None = None
    thinks: bool = False
    texts: list[str] = field(default_factory=list)

    def block(self) -> Block:
        """The block as it is now."""
        text = "".join(self.texts)
        if self.call is not None:
            return ToolUseBlock(self.call.id, self.call.name, input_of(text))
        return ThinkingBlock(text) if self.thinks else TextBlock(text)

    def delta(self, text: str) -> TextDelta | ThinkingDelta | InputJsonDelta:
        """More of it."""
        if self.call is not None:
            return InputJsonDelta(text)
        return ThinkingDelta(text) if self.thinks else TextDelta(text)


class Narrator:
    """One message on its way. Each step returns its events; `message` is the state after the last one."""

    def __init__(self, message: Message) -> None:
        """`message` has nothing of its answer yet."""
        self.message = message
        self._open: _Open | None = None
        self._blocks: list[Block] = []
        self._reason = "end_turn"
        self._stop: str | None = None

    def begun(self) -> list[Event]:
        """The message begins."""
        return [MessageStart(self.message), Ping()]

    def take(self, piece: TurnPiece, stop: str | None = None) -> list[Event]:
        """What a piece of the turn brings; `stop` is the stop sequence that ended it."""
        events: list[Event] = []
        for part in piece.parts:
            events += self._part(part)
        if piece.finish is not None:
            events += self._close()
            self._stop = stop
            called = any(isinstance(block, ToolUseBlock) for block in self._blocks)
            # A turn that was forced to call ends as text does, in the words of chats.
            finish = "tool_calls" if called and piece.finish == "stop" else piece.finish
            self._reason = "stop_sequence" if stop is not None else REASONS.get(finish, "end_turn")
        return events

    def ended(self, usage: Usage) -> list[Event]:
        """The message has ended, with its token counts."""
        self.message = replace(
            self.message, content=self._blocks, usage=usage, stop_reason=self._reason, stop_sequence=self._stop
        )
        return [MessageDelta(StopDelta(self._reason, self._stop), usage), MessageStop()]

    def _part(self, part: Part) -> Iterable[Event]:
        match part:
            case Content(text) | Reasoning(text):
                if not text:
                    return
                thinks = isinstance(part, Reasoning)
                if self._open is None or self._open.call is not None or self._open.thinks != thinks:
                    yield from self._begin(_Open(thinks=thinks))
                yield self._more(text)
            case CallBegun():
                yield from self._begin(_Open(call=part))
            case CallArguments(text=text):
                if text:
                    yield self._more(text)

    def _begin(self, opened: _Open) -> Iterable[Event]:
        yield from self._close()
        self._open = opened
        yield BlockStart(len(self._blocks), opened.block())

    def _more(self, text: str) -> Event:
        assert self._open is not None, "arguments come after the beginning of their call"
        self._open.texts.append(text)
        return BlockDelta(len(self._blocks), self._open.delta(text))

    def _close(self) -> Iterable[Event]:
        if self._open is not None:
            yield BlockStop(len(self._blocks))
            self._blocks.append(self._open.block())
            self._open = None


def input_of(arguments: str) -> dict[str, Any]:
    """The input of a tool. What the model wrote is kept as text where it is no object of JSON, as when its token limit
    cut it, or too deep. Half a surrogate pair, which no answer can hold, becomes U+FFFD.
    """
    if not arguments.strip():
        return {}
    as_text = {"arguments": arguments}
    try:
        found = json.loads(arguments)
        if not isinstance(found, dict) or not depth_fits(found, MAX_INPUT_DEPTH):
            return as_text
        written = json.dumps(found, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return as_text
    return json.loads(HALF.sub(REPLACEMENT, written)) if HALF.search(written) else found
