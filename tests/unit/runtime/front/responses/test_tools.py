"""Tools and thoughts in responses: the scripted engine says the last message, which spells calls and thoughts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..conftest import Front, write_model
from ..turn.test_tools import CALLS, THOUGHT, THOUGHT_TOKENS, WEATHER, thinking_front, tool_front
from .openai_shapes import checked_events, checked_response
from .test_responses import URL, events_of, refused

__all__ = ["thinking_front", "tool_front"]

TOOLS = [
    {"type": "function", "name": "get_weather", "description": "Weather.", "parameters": WEATHER},
    {"type": "function", "name": "now"},
]


def test_calls_are_items_whole_and_streamed(tool_front: Front) -> None:
    body = {"input": CALLS, "tools": TOOLS}
    whole = checked_response(tool_front.post(URL, body).json())
    message, first, second = whole.output
    assert (whole.status, whole.output_text, message.type) == ("completed", "I look.", "message")
    assert first.type == second.type == "function_call"
    assert (first.name, json.loads(first.arguments)) == ("get_weather", {"city": "Zürich 😀"})
    assert (second.name, second.arguments) == ("now", "{}")
    assert first.call_id != second.call_id
    events = events_of(tool_front.post(URL, body | {"stream": True}).text)
    checked_events(events)
    deltas = [event["delta"] for event in events if event["type"] == "response.function_call_arguments.delta"]
    assert "".join(deltas) == first.arguments + second.arguments
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["message", "function_call", "function_call"]


def test_the_client_reads_calls_and_answers_them(tool_front: Front) -> None:
    client = tool_front.client()
    tools: Any = TOOLS
    first = client.responses.create(input=CALLS, tools=tools)
    calls = [item for item in first.output if item.type == "function_call"]
    outputs: Any = [
        {"type": "function_call_output", "call_id": call.call_id, "output": [{"type": "input_text", "text": "noon"}]}
        for call in calls
    ]
    second = client.responses.create(input=outputs, previous_response_id=first.id, tools=tools)
    assert (second.status, "noon" in second.output_text) == ("completed", True)
    stateless: Any = [{"role": "user", "content": CALLS}, *[item.model_dump() for item in first.output], *outputs]
    assert client.responses.create(input=stateless, tools=tools, store=False).output_text == second.output_text


def test_items_of_one_turn_are_one_message_of_the_chat(own_front: Callable[..., Front], tmp_path: Path) -> None:
    template = (
        "{% for turn in messages %}[{{ turn.role }} {{ turn.reasoning_content }} {{ turn.content }}"
        "{% for call in turn.tool_calls %} {{ call.id }}={{ call.function.name }}{{ call.function.arguments.a }}"
        "{% endfor %} {{ turn.tool_call_id }}]{% endfor %}{{ tools }}"
    )
    front = own_front(model=write_model(tmp_path / "reads", template))
    items = [
        {"role": "user", "content": "q"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "why"}]},
        {"role": "assistant", "content": "t"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'},
        {"type": "function_call", "call_id": "c2", "name": "f", "arguments": '{"a": 2}'},
        {"type": "function_call_output", "call_id": "c2", "output": "two"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "reasoning", "id": "rs_2", "summary": [], "content": [{"type": "reasoning_text", "text": "lost"}]},
    ]
    reply = front.post(URL, {"input": items})
    assert reply.json()["output"][0]["content"][0]["text"] == (
        "[user  q ][assistant why t c1=f1 c2=f2 ][tool  two c2][tool  one c1]"
    )
    assert reply.headers["x-ignored-fields"] == "input[].reasoning"


def test_tool_choices_are_those_of_a_chat(tool_front: Front) -> None:
    none = tool_front.post(URL, {"input": CALLS, "tools": TOOLS, "tool_choice": "none"})
    assert checked_response(none.json()).output_text == CALLS
    one = tool_front.post(URL, {"input": CALLS, "tools": TOOLS, "parallel_tool_calls": False})
    assert [item["type"] for item in one.json()["output"]] == ["message", "function_call"]
    some = tool_front.post(URL, {"input": CALLS, "tools": TOOLS, "tool_choice": allowed("now")})
    assert checked_response(some.json()).tool_choice.type == "allowed_tools"  # type: ignore[union-attr]


def allowed(name: Any) -> dict[str, Any]:
    """A choice of one tool, which need not be called."""
    return {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": name}]}


def test_what_is_wrong_with_tools_is_named_in_the_words_of_a_response(tool_front: Front) -> None:
    function = {"type": "function", "name": "f"}
    for more, param in (
        ({"tools": [function, function]}, "tools"),
        ({"tools": [function | {"name": 'a"b'}]}, "tools[0].name"),
        ({"tools": [function | {"parameters": []}]}, "tools[0].parameters"),
        ({"tools": [function], "tool_choice": {"type": "function", "name": "g"}}, "tool_choice.name"),
        ({"tools": [function], "tool_choice": {"type": "mcp"}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [function], "tool_choice": allowed("g")}, "tool_choice.tools[0].name"),
        ({"tools": [function], "tool_choice": allowed(["f"])}, "tool_choice.tools[0].name"),
        ({"tools": [function], "tool_choice": allowed("f") | {"tools": ["f"]}}, "tool_choice.tools[0]"),
        ({"tools": [function], "tool_choice": allowed("f") | {"tools": []}}, "tool_choice.tools"),
        ({"tools": [function], "tool_choice": {"type": "allowed_tools"}}, "tool_choice.mode"),
        ({"tools": [function], "tool_choice": allowed("f") | {"mode": "some"}}, "tool_choice.mode"),
    ):
        reply = tool_front.post(URL, {"input": "x"} | more)
        assert (reply.status_code, refused(reply)[2]) == (400, param), reply.text
        assert "function.name" not in reply.text


def test_thoughts_are_an_item_of_their_own_and_are_counted(thinking_front: Front) -> None:
    whole = checked_response(thinking_front.post(URL, {"input": THOUGHT}).json())
    reasoning, message = whole.output
    assert reasoning.type == "reasoning"
    assert message.type == "message"
    assert [part.text for part in reasoning.content or ()] == ["1 + 1é"]
    assert whole.output_text == "Two."
    assert whole.usage is not None
    assert whole.usage.output_tokens_details.reasoning_tokens == THOUGHT_TOKENS
    events = events_of(thinking_front.post(URL, {"input": THOUGHT, "stream": True}).text)
    checked_events(events)
    assert events[-1]["response"]["usage"]["output_tokens_details"] == {"reasoning_tokens": THOUGHT_TOKENS}
    logprobs = {"include": ["message.output_text.logprobs"], "input": THOUGHT}
    (text,) = thinking_front.post(URL, logprobs).json()["output"][1]["content"]
    assert "".join(one["token"] for one in text["logprobs"]).endswith("Two.")
    assert "1" not in {one["token"] for one in text["logprobs"]}


def test_an_effort_switches_thoughts_where_the_template_can(thinking_front: Front, front: Front) -> None:
    assert thinking_front.post(URL, {"input": "x", "reasoning": {"effort": "none"}}).status_code == 200
    assert refused(thinking_front.post(URL, {"input": "x", "reasoning": {"effort": "some"}}))[2] == "reasoning.effort"
    plain = front.post(URL, {"input": "x", "reasoning": {"effort": "low"}})
    assert (plain.status_code, plain.headers["x-ignored-fields"]) == (200, "reasoning.effort")
    assert "x-ignored-fields" not in front.post(URL, {"input": "x", "reasoning": {"effort": "none"}}).headers


def test_an_effort_without_a_switch_has_no_effect_and_is_named(own_front: Callable[..., Front], tmp_path: Path) -> None:
    front = own_front(
        model=write_model(tmp_path / "thinks", "{{ messages[-1].content }}{% if false %}<think>{% endif %}")
    )
    for effort in ("low", "none"):
        reply = front.post(URL, {"input": "x", "reasoning": {"effort": effort}})
        assert (reply.status_code, reply.headers["x-ignored-fields"]) == (200, "reasoning.effort")


def test_a_turn_that_its_limit_cuts_in_a_call_is_incomplete(tool_front: Front) -> None:
    whole = checked_response(tool_front.post(URL, {"input": CALLS, "tools": TOOLS, "max_output_tokens": 80}).json())
    assert (whole.status, whole.output[-1].status) == ("incomplete", "incomplete")  # type: ignore[union-attr]
