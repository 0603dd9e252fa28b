"""From parts of a turn to items and events: OpenAI's types, vLLM's laws, and streams that add up to the response."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpod_runtime.front.openai.responses.events import encoded
from graphpod_runtime.front.openai.responses.items import answered
from graphpod_runtime.front.openai.responses.narrator import Narrator
from graphpod_runtime.front.openai.responses.reply import (
    InputTokensDetails,
    OutputTokensDetails,
    Response,
    ResponseUsage,
    TextLogprob,
)
from graphpod_runtime.front.openai.turn.reader import TurnPiece
from graphpod_runtime.front.requests.errors import engine_error, unavailable
from graphpod_runtime.front.text.logprobs import TokenInText
from graphpod_runtime.front.text.turn.parts import CallArguments, CallBegun, Content, Part, Reasoning, joined
from graphpod_runtime.wire.messages import Logprob

from .openai_shapes import checked_events, checked_response

USAGE = ResponseUsage(5, InputTokensDetails(0, 0), 7, OutputTokensDetails(2), 12)


def response() -> Response:
    """One that has not begun."""
    return Response(
        id="resp_1", created_at=1, status="in_progress", model="echo", background=False, instructions=None,
        max_output_tokens=None, metadata={}, parallel_tool_calls=True, previous_response_id=None, prompt_cache_key=None,
        reasoning=None, safety_identifier=None, store=True, temperature=1.0, text={"format": {"type": "text"}},
        tool_choice="auto", tools=[], top_logprobs=0, top_p=1.0, truncation="disabled", user=None,
    )  # fmt: skip


def narrated(pieces: list[TurnPiece], **more: Any) -> tuple[list[Any], Any]:
    """The events of pieces as JSON, and the response at the end."""
    narrator = Narrator(response(), clock=lambda: 9.0, **more)
    events = narrator.created()
    for piece in pieces:
        events += narrator.take(piece)
    events += narrator.ended(USAGE)
    said = [json.loads(one.partition("data: ")[2]) for one in encoded(events).decode().split("\n\n")[:-1]]
    return said, json.loads(msgspec.json.encode(narrator.response))


@st.composite
def turns(draw: st.DrawFn) -> list[TurnPiece]:
    """Text, thoughts and calls in any order, cut into pieces anywhere."""
    parts: list[Part] = []
    calls = 0
    for kind in draw(st.lists(st.sampled_from("trc"), max_size=8)):
        texts = draw(st.lists(st.text(max_size=3), max_size=3))
        if kind == "c":
            parts.append(CallBegun(calls, f"call_{calls}", "f"))
            parts += [CallArguments(calls, text) for text in texts]
            calls += 1
        else:
            parts += [Content(text) if kind == "t" else Reasoning(text) for text in texts]
    cuts = sorted(draw(st.lists(st.integers(0, len(parts)), max_size=4)))
    pieces = [TurnPiece(0, tuple(parts[a:b])) for a, b in zip([0, *cuts], [*cuts, len(parts)], strict=True)]
    finish = "length" if draw(st.booleans()) else "tool_calls" if calls else "stop"
    return [*pieces, TurnPiece(0, (), finish)]


@given(turns())
def test_any_turn_keeps_the_types_and_the_laws_and_adds_up(pieces: list[TurnPiece]) -> None:
    events, whole = narrated(pieces)
    checked_events(events)
    ended = checked_response(whole)
    assert events[-1]["response"] == whole
    length = pieces[-1].finish == "length"
    assert (ended.status, ended.completed_at) == (("incomplete", None) if length else ("completed", 9))
    turn = joined(part for piece in pieces for part in piece.parts)
    assert ended.output_text == turn.content
    assert "".join(item.content[0].text for item in ended.output if item.type == "reasoning" and item.content) == (
        turn.reasoning
    )
    calls = [(item.call_id, item.name, item.arguments) for item in ended.output if item.type == "function_call"]
    assert calls == [(call.id, call.name, call.arguments) for call in turn.calls]
    deltas: dict[str, list[str]] = {}
    for event in events:
        if event["type"].endswith(".delta"):
            deltas.setdefault(event["item_id"], []).append(event["delta"])
    for item in whole["output"]:
        text = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
        assert "".join(deltas.get(item["id"], [])) == text
    assert len({item["id"] for item in whole["output"]}) == len(whole["output"]) >= 1


def test_an_answer_that_its_token_limit_ends_is_incomplete() -> None:
    events, whole = narrated([TurnPiece(0, (Content("ab"),)), TurnPiece(0, (), "length")])
    assert events[-1]["type"] == "response.incomplete"
    assert whole["incomplete_details"] == {"reason": "max_output_tokens"}
    assert whole["output"][0]["status"] == "incomplete"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (engine_error("the device fell off the bus"), "server_error"),
        (unavailable("full", "queue_full"), "rate_limit_exceeded"),
    ],
)
def test_a_failure_says_why_and_keeps_what_had_come(error: Any, code: str) -> None:
    narrator = Narrator(response())
    events = [*narrator.created(), *narrator.take(TurnPiece(0, (Content("ab"),))), *narrator.failed(error)]
    said = [json.loads(one.partition("data: ")[2]) for one in encoded(events).decode().split("\n\n")[:-1]]
    checked_events(said)
    failed = checked_response(said[-1]["response"])
    assert (failed.status, failed.output_text) == ("failed", "ab")
    assert failed.error is not None
    assert (failed.error.code, failed.error.message) == (code, error.message)


def test_a_cancelled_response_keeps_what_had_come_and_goes_on_from_nothing() -> None:
    narrator = Narrator(response())
    narrator.take(TurnPiece(0, (CallBegun(0, "call_a", "f"), CallArguments(0, "{"))))
    narrator.cancelled()
    cancelled = checked_response(json.loads(msgspec.json.encode(narrator.response)))
    assert (cancelled.status, cancelled.output[0].status) == ("cancelled", "incomplete")  # type: ignore[union-attr]


def test_log_probabilities_go_with_the_text_of_messages_alone() -> None:
    def token(id: int) -> TokenInText:
        return TokenInText(id, 0, Logprob(id, -1.0))

    def named(said: Any) -> list[TextLogprob]:
        return [TextLogprob(str(one.id), -1.0, [], []) for one in said]

    pieces = [
        TurnPiece(0, (Reasoning("hm"),), None, (token(1),)),
        TurnPiece(0, (), None, (token(2),)),  # held: it may become a call
        TurnPiece(0, (Content("ab"),), None, (token(3),)),
        TurnPiece(0, (CallBegun(0, "call_a", "f"),), None, (token(4),)),
        TurnPiece(0, (), "tool_calls", (token(5),)),
    ]
    events, whole = narrated(pieces, logprobs_of=named)
    checked_events(events)
    (message,) = (item for item in whole["output"] if item["type"] == "message")
    assert [one["token"] for one in message["content"][0]["logprobs"]] == ["2", "3"]
    (delta,) = (event for event in events if event["type"] == "response.output_text.delta")
    assert [one["token"] for one in delta["logprobs"]] == ["2", "3"]


def test_the_answer_is_a_turn_of_the_conversation_that_goes_on() -> None:
    narrator = Narrator(response())
    narrator.take(TurnPiece(0, (Reasoning("r"), Content("a"), CallBegun(0, "call_a", "f"), CallArguments(0, "{}"))))
    narrator.take(TurnPiece(0, (), "tool_calls"))
    narrator.ended(USAGE)
    [turn] = answered(narrator.response.output)
    assert (turn["role"], turn["content"]) == ("assistant", "a")
    assert turn["tool_calls"] == [{"id": "call_a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
