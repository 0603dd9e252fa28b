"""The events of a streamed response, as OpenAI writes them."""

import msgspec

from graphpod_runtime.front.openai.chunks import event
from graphpod_runtime.front.openai.responses.reply import OutputItem, OutputText, ReasoningText, Response, TextLogprob

_encoder = msgspec.json.Encoder()


class ResponseEvent(msgspec.Struct, frozen=True):
    """response.created, in_progress, completed, incomplete, failed: the response as it is then."""

    type: str
    sequence_number: int
    response: Response


class ItemEvent(msgspec.Struct, frozen=True):
    """response.output_item.added and done."""

    type: str
    sequence_number: int
    output_index: int
    item: OutputItem


class PartEvent(msgspec.Struct, frozen=True):
    """response.content_part.added and done."""

    type: str
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    part: OutputText | ReasoningText


class TextDelta(msgspec.Struct, frozen=True):
    """More of a message's text."""

    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    delta: str
    logprobs: list[TextLogprob]
    type: str = "response.output_text.delta"


class TextDone(msgspec.Struct, frozen=True):
    """The whole text of a message."""

    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    text: str
    logprobs: list[TextLogprob]
    type: str = "response.output_text.done"


class ReasoningDelta(msgspec.Struct, frozen=True):
    """More of what the model thinks."""

    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    delta: str
    type: str = "response.reasoning_text.delta"


class ReasoningDone(msgspec.Struct, frozen=True):
    """All that the model thought."""

    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    text: str
    type: str = "response.reasoning_text.done"


class ArgumentsDelta(msgspec.Struct, frozen=True):
    """More of a call's arguments."""

    sequence_number: int
    item_id: str
    output_index: int
    delta: str
    type: str = "response.function_call_arguments.delta"


class ArgumentsDone(msgspec.Struct, frozen=True):
    """All arguments of a call."""

    sequence_number: int
    item_id: str
    output_index: int
    name: str
    arguments: str
    type: str = "response.function_call_arguments.done"


Event = (
    ResponseEvent
    | ItemEvent
    | PartEvent
    | TextDelta
    | TextDone
    | ReasoningDelta
    | ReasoningDone
    | ArgumentsDelta
    | ArgumentsDone
)


def encoded(events: list[Event]) -> bytes:
    """The events as bytes of a stream; each has its type as its name."""
    return b"".join(event(_encoder.encode(one), one.type.encode()) for one in events)
