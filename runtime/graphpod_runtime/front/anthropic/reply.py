"""A message, its blocks and events, as Anthropic writes them."""

from typing import Any

import msgspec

from graphpod_runtime.front.openai.chunks import event


class TextBlock(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """Text."""

    text: str
    citations: None = None


class ThinkingBlock(msgspec.Struct, frozen=True, tag_field="type", tag="thinking"):
    """What the model thought; it is not signed."""

    thinking: str
    signature: str = ""


class ToolUseBlock(msgspec.Struct, frozen=True, tag_field="type", tag="tool_use"):
    """A tool that the model uses."""

    id: str
    name: str
    input: dict[str, Any]


Block = TextBlock | ThinkingBlock | ToolUseBlock


class OutputTokensDetails(msgspec.Struct, frozen=True):
    """Of the answer's tokens, those of thoughts."""

    thinking_tokens: int


class Usage(msgspec.Struct, frozen=True):
    """Tokens of a message. The prompt's are the sum of the three; their parts are known with the first token."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens_details: OutputTokensDetails | msgspec.UnsetType = msgspec.UNSET
    service_tier: str = "standard"


class Message(msgspec.Struct, frozen=True):
    """The assistant's turn."""

    id: str
    model: str
    content: list[Block]
    usage: Usage
    stop_reason: str | None = None
    stop_sequence: str | None = None
    role: str = "assistant"
    type: str = "message"


class TokensCount(msgspec.Struct, frozen=True):
    """POST /v1/messages/count_tokens."""

    input_tokens: int


class TextDelta(msgspec.Struct, frozen=True, tag_field="type", tag="text_delta"):
    """More text."""

    text: str


class ThinkingDelta(msgspec.Struct, frozen=True, tag_field="type", tag="thinking_delta"):
    """More thoughts."""

    thinking: str


class InputJsonDelta(msgspec.Struct, frozen=True, tag_field="type", tag="input_json_delta"):
    """More of a tool's input."""

    partial_json: str


class StopDelta(msgspec.Struct, frozen=True):
    """Why the message ended."""

    stop_reason: str
    stop_sequence: str | None


class MessageStart(msgspec.Struct, frozen=True):
    """The message, empty."""

    message: Message
    type: str = "message_start"


class BlockStart(msgspec.Struct, frozen=True):
    """A block begins, empty."""

    index: int
    content_block: Block
    type: str = "content_block_start"


class BlockDelta(msgspec.Struct, frozen=True):
    """More of a block."""

    index: int
    delta: TextDelta | ThinkingDelta | InputJsonDelta
    type: str = "content_block_delta"


class BlockStop(msgspec.Struct, frozen=True):
    """A block has ended."""

    index: int
    type: str = "content_block_stop"


class MessageDelta(msgspec.Struct, frozen=True):
    """How the message ended."""

    delta: StopDelta
    usage: Usage
    type: str = "message_delta"


class MessageStop(msgspec.Struct, frozen=True):
    """The last event."""

    type: str = "message_stop"


class Ping(msgspec.Struct, frozen=True):
    """The connection is open."""

    type: str = "ping"


Event = MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop | Ping

_encoder = msgspec.json.Encoder()


def encoded(events: list[Event]) -> bytes:
    """The events as bytes of a stream; each has its type as its name."""
    return b"".join(event(_encoder.encode(one), one.type.encode()) for one in events)
