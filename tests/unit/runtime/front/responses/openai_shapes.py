"""What OpenAI's own types say of a response and of its events, and the laws of a stream of them.

The laws are those of vLLM 0.33.0, tests/entrypoints/openai/responses/conftest.py (Apache-2.0): pairs are nested, the
envelope is in order, and an event names the item that is open.
"""

from collections.abc import Sequence
from typing import Any, get_args

from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel

EVENTS: dict[str, type[BaseModel]] = {
    kind.model_fields["type"].annotation.__args__[0]: kind for kind in get_args(get_args(ResponseStreamEvent)[0])
}
"""By the word in their `type`."""
PAIRS = {
    "response.output_item.done": "response.output_item.added",
    "response.content_part.done": "response.content_part.added",
    "response.output_text.done": "response.output_text.delta",
    "response.reasoning_text.done": "response.reasoning_text.delta",
    "response.function_call_arguments.done": "response.function_call_arguments.delta",
}
ENDS = ("response.completed", "response.incomplete", "response.failed")


def checked_response(body: Any) -> Response:
    """The response, if every field that OpenAI's type requires is there with its type."""
    return Response.model_validate(body, strict=True)


def checked_events(events: Sequence[Any]) -> list[Any]:
    """The events, if each has the fields of its type, and all together keep the laws."""
    parsed = [EVENTS[event["type"]].model_validate(event, strict=True) for event in events]
    assert [event.sequence_number for event in parsed] == list(range(len(parsed)))  # type: ignore[attr-defined]
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] in ENDS
    assert not set(kinds[2:-1]) & {"response.created", "response.in_progress", *ENDS}
    if kinds[-1] != "response.failed":
        _check_pairs(kinds)
    _check_places(events)
    return parsed


def _check_pairs(kinds: Sequence[str]) -> None:
    stack: list[str] = []
    for kind in kinds[2:-1]:
        if kind in PAIRS:
            begun = PAIRS[kind]
            if begun.endswith(".delta") and (not stack or stack[-1] != begun):
                continue  # nothing came
            assert stack.pop() == begun, kind
        elif not (kind.endswith(".delta") and stack and stack[-1] == kind):
            stack.append(kind)
    assert stack == []


def _check_places(events: Sequence[Any]) -> None:
    item, index = None, -1
    for event in events[2:-1]:
        if event["type"] == "response.output_item.added":
            assert event["output_index"] == index + 1
            item, index = event["item"]["id"], event["output_index"]
            continue
        own = event["item"]["id"] if "item" in event else event["item_id"]
        assert (own, event["output_index"]) == (item, index), event
