"""What Anthropic's own types say of a message and of its events, and the laws of a stream of them.

The types are imported by the first test that uses them: to import them takes more than a processor second, which each
worker of a run would spend to collect its tests.
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

if TYPE_CHECKING:
    from anthropic.types import Message

DELTAS = {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}


@cache
def event_types() -> dict[str, type[BaseModel]]:
    """By the name of an event."""
    from anthropic import types

    return {
        "message_start": types.RawMessageStartEvent,
        "content_block_start": types.RawContentBlockStartEvent,
        "content_block_delta": types.RawContentBlockDeltaEvent,
        "content_block_stop": types.RawContentBlockStopEvent,
        "message_delta": types.RawMessageDeltaEvent,
        "message_stop": types.RawMessageStopEvent,
    }


def checked_message(body: Any) -> "Message":
    """The message, if every field that Anthropic's type requires is there with its type."""
    from anthropic.types import Message

    assert body["stop_reason"] is not None
    return Message.model_validate(body, strict=True)


def checked_events(events: Sequence[Any]) -> None:
    """Each event has the fields of its type. Blocks come one after another, with deltas of their kind alone."""
    for event in events:
        if event["type"] != "ping":
            event_types()[event["type"]].model_validate(event, strict=True)
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
