"""What Anthropic's own types say of a message and of its events, and the laws of a stream of them."""

from collections.abc import Sequence
from typing import Any

from anthropic.types import (
    Message,
    RawContentBlockDeltaEvent,
    RawContentBlockStartEvent,
    RawContentBlockStopEvent,
    RawMessageDeltaEvent,
    RawMessageStartEvent,
    RawMessageStopEvent,
)
from pydantic import BaseModel

EVENTS: dict[str, type[BaseModel]] = {
    "message_start": RawMessageStartEvent,
    "content_block_start": RawContentBlockStartEvent,
    "content_block_delta": RawContentBlockDeltaEvent,
    "content_block_stop": RawContentBlockStopEvent,
    "message_delta": RawMessageDeltaEvent,
    "message_stop": RawMessageStopEvent,
}
DELTAS = {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}


def checked_message(body: Any) -> Message:
    """The message, if every field that Anthropic's type requires is there with its type."""
    assert body["stop_reason"] is not None
    return Message.model_validate(body, strict=True)


def checked_events(events: Sequence[Any]) -> None:
    """Each event has the fields of its type. Blocks come one after another, with deltas of their kind alone."""
    for event in events:
        if event["type"] != "ping":
            EVENTS[event["type"]].model_validate(event, strict=True)
    kinds = [event["type"] for event in events if event["type"] != "ping"]
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    assert not set(kinds[1:-2]) & {"message_start", "message_delta", "message_stop"}
    index, block = -1, None
    for event in (event for event in events[1:] if event["type"].startswith("content_block")):
        if event["type"] == "content_block_start":
            assert (block, event["index"]) == (None, index + 1)
            index, block = event["index"], event["content_block"]["type"]
        else:
            assert block is not None
            assert event["index"] == index
            if event["type"] == "content_block_stop":
                block = None
            else:
                assert event["delta"]["type"] == DELTAS[block]
    assert block is None
