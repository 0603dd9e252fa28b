"""Parts of a turn, joined, and in the shapes of chat completions."""

import msgspec

from graphpod_runtime.front.openai.turn.chat_shape import deltas_of, message_of
from graphpod_runtime.front.text.turn.parts import (
    Call,
    CallArguments,
    CallBegun,
    Content,
    Part,
    Reasoning,
    Turn,
    joined,
)

PARTS: tuple[Part, ...] = (
    Reasoning("I need "),
    Reasoning("both."),
    Content("Let me look."),
    CallBegun(0, "call_a", "weather"),
    CallArguments(0, '{"city": '),
    CallArguments(0, '"Kyiv"}'),
    CallBegun(1, "call_b", "now"),
    CallArguments(1, "{}"),
)


def test_parts_join_to_a_turn() -> None:
    calls = (Call("call_a", "weather", '{"city": "Kyiv"}'), Call("call_b", "now", "{}"))
    assert joined(PARTS) == Turn("Let me look.", "I need both.", calls)


def test_a_message_has_the_fields_that_its_turn_has() -> None:
    assert msgspec.to_builtins(message_of([Content("hi")])) == {"role": "assistant", "content": "hi"}
    assert msgspec.to_builtins(message_of([])) == {"role": "assistant", "content": ""}
    assert msgspec.to_builtins(message_of(PARTS[3:])) == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_a", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Kyiv"}'}},
            {"id": "call_b", "type": "function", "function": {"name": "now", "arguments": "{}"}},
        ],
    }
    thought = msgspec.to_builtins(message_of([Reasoning("hm")]))
    assert thought == {"role": "assistant", "content": None, "reasoning": "hm", "reasoning_content": "hm"}


def test_a_delta_names_a_call_once_and_the_next_brings_arguments() -> None:
    assert msgspec.to_builtins(deltas_of(PARTS[2:5])) == [
        {
            "content": "Let me look.",
            "tool_calls": [
                {"index": 0, "id": "call_a", "type": "function", "function": {"name": "weather", "arguments": ""}}
            ],
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"city": '}}]},
    ]
    reasoned = {"content": "Let me look.", "reasoning": "I need both.", "reasoning_content": "I need both."}
    assert msgspec.to_builtins(deltas_of(PARTS[:3])) == [reasoned]
    assert msgspec.to_builtins(deltas_of([])) == [{"content": ""}]


def test_no_delta_has_two_entries_of_calls() -> None:
    deltas = deltas_of((*PARTS, Content("Both.")))
    assert [len(delta.tool_calls or ()) for delta in deltas] == [1] * 5
    assert [delta.content for delta in deltas] == ["Let me look.", None, None, None, "Both."]
