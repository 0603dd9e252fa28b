"""From parts of a turn to blocks and events: Anthropic's types, and streams that add up to the message."""

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from graphpod_runtime.front.anthropic.narrator import Narrator, input_of
from graphpod_runtime.front.anthropic.reply import Message, Usage, encoded
from graphpod_runtime.front.openai.turn.reader import TurnPiece
from graphpod_runtime.front.text.turn.parts import CallArguments, CallBegun, Content, Part, Reasoning, joined

from .anthropic_shapes import checked_events, checked_message


def narrated(pieces: list[TurnPiece], stop: str | None = None) -> tuple[list[Any], Any]:
    """The events of pieces as JSON, and the message at the end."""
    narrator = Narrator(Message("msg_1", "echo", [], Usage(5, 0)))
    events = narrator.begun()
    for piece in pieces:
        events += narrator.take(piece, stop if piece.finish else None)
    events += narrator.ended(Usage(1, 7, 2, 2))
    said = [json.loads(one.partition("data: ")[2]) for one in encoded(events).decode().split("\n\n")[:-1]]
    return said, json.loads(msgspec.json.encode(narrator.message))


@st.composite
def turns(draw: st.DrawFn) -> list[TurnPiece]:
    """Text, thoughts and calls in any order, cut into pieces anywhere."""
    parts: list[Part] = []
    calls = 0
    for kind in draw(st.lists(st.sampled_from("trc"), max_size=8)):
        if kind == "c":
            parts.append(CallBegun(calls, f"call_{calls}", "f"))
            text = draw(st.sampled_from(("", "{}", '{"a": [1]}', '{"a":', "[1]", "[" * 3000)))
            parts += [CallArguments(calls, text[:3]), CallArguments(calls, text[3:])]
            calls += 1
        else:
            texts = draw(st.lists(st.text(max_size=3), max_size=3))
            parts += [Content(text) if kind == "t" else Reasoning(text) for text in texts]
    cuts = sorted(draw(st.lists(st.integers(0, len(parts)), max_size=4)))
    pieces = [TurnPiece(0, tuple(parts[a:b])) for a, b in zip([0, *cuts], [*cuts, len(parts)], strict=True)]
    ends = ("length", "stop", "tool_calls") if calls else ("length", "stop")
    return [*pieces, TurnPiece(0, (), draw(st.sampled_from(ends)))]


@given(turns())
def test_any_turn_keeps_the_types_and_the_laws_and_adds_up(pieces: list[TurnPiece]) -> None:
    events, whole = narrated(pieces)
    checked_events(events)
    message = checked_message(whole)
    turn = joined(part for piece in pieces for part in piece.parts)
    assert "".join(block.text for block in message.content if block.type == "text") == turn.content
    assert "".join(block.thinking for block in message.content if block.type == "thinking") == turn.reasoning
    used = [(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"]
    assert used == [(call.id, call.name, input_of(call.arguments)) for call in turn.calls]
    deltas: dict[int, str] = {}
    for event in events:
        if event["type"] == "content_block_delta":
            (text,) = (value for name, value in event["delta"].items() if name != "type")
            deltas[event["index"]] = deltas.get(event["index"], "") + text
    for at, block in enumerate(whole["content"]):
        if block["type"] == "tool_use":
            assert input_of(deltas.get(at, "")) == block["input"]
        else:
            assert deltas[at] == block[block["type"]]
    assert events[-2]["usage"] == whole["usage"]
    assert events[-2]["delta"]["stop_reason"] == whole["stop_reason"]
    reasons = {"length": "max_tokens", "tool_calls": "tool_use", "stop": "tool_use" if turn.calls else "end_turn"}
    assert whole["stop_reason"] == reasons[str(pieces[-1].finish)]


def test_a_stop_sequence_is_named() -> None:
    events, whole = narrated([TurnPiece(0, (Content("a"),)), TurnPiece(0, (), "stop")], "END")
    assert (whole["stop_reason"], whole["stop_sequence"]) == ("stop_sequence", "END")
    assert events[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "END"}


def test_an_input_that_no_answer_can_hold_is_written_all_the_same() -> None:
    assert input_of(r'{"a\udfff": ["\ud800b", "\ud83d\ude00"], "n": 1e400}') == {
        "arguments": r'{"a\udfff": ["\ud800b", "\ud83d\ude00"], "n": 1e400}'
    }
    assert input_of(r'{"a\udfff": ["\ud800b", "\ud83d\ude00"]}') == {"a\ufffd": ["\ufffdb", "😀"]}
    for text in ('{"a": %s}' % ("[" * 900 + "]" * 900), '{"a": NaN}', '{"a": %s}' % ("9" * 5000)):
        assert input_of(text) == {"arguments": text}
    msgspec.json.encode(input_of('{"a": %s}' % ("[" * 63 + "]" * 63)))
    msgspec.json.encode(input_of('{"a": %s}' % ("9" * 1000)))


def test_what_is_no_object_is_kept_as_text() -> None:
    assert input_of(' {"a": 1} ') == {"a": 1}
    assert input_of(" ") == {}
    for text in ('{"a":', "[1]", "5", "[" * 100_000):
        assert input_of(text) == {"arguments": text}
