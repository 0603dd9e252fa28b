"""Tools and thoughts in messages: the scripted engine says the last message, which spells calls and thoughts."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ..conftest import Front, start_front, write_model
from ..turn.test_tools import CALLS, THOUGHT, THOUGHT_TOKENS, WEATHER, thinking_front, tool_front
from .anthropic_shapes import checked_events, checked_message
from .test_messages import COUNT, URL, ask, client_of, events_of, refused

__all__ = ["thinking_front", "tool_front"]

TOOLS: Any = [
    {"name": "get_weather", "description": "Weather.", "input_schema": WEATHER},
    {"name": "now", "input_schema": {"type": "object"}, "type": "custom"},
]


def call(text: str, **more: Any) -> dict[str, Any]:
    """A request with tools."""
    return ask(text, tools=TOOLS, max_tokens=500) | more


def test_calls_are_blocks_whole_and_streamed(tool_front: Front) -> None:
    message = checked_message(tool_front.post(URL, call(CALLS)).json())
    text, first, second = message.content
    assert (message.stop_reason, text.type, first.type, second.type) == ("tool_use", "text", "tool_use", "tool_use")
    assert (first.name, first.input) == ("get_weather", {"city": "Zürich 😀"})
    assert (second.name, second.input) == ("now", {})
    checked_events(events_of(tool_front.post(URL, call(CALLS, stream=True)).text))
    with client_of(tool_front).messages.stream(**call(CALLS)) as stream:
        final = stream.get_final_message()
    assert final.stop_reason == "tool_use"
    assert [(block.name, block.input) for block in final.content if block.type == "tool_use"] == [
        ("get_weather", {"city": "Zürich 😀"}), ("now", {}),
    ]  # fmt: skip


def test_the_client_answers_calls(tool_front: Front) -> None:
    client = client_of(tool_front)
    first = client.messages.create(**call(CALLS))
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": "noon"}]}
        for block in first.content
        if block.type == "tool_use"
    ]
    messages: Any = [{"role": "user", "content": CALLS}, first.to_param(), {"role": "user", "content": results}]
    second = client.messages.create(model="echo", max_tokens=500, messages=messages, tools=TOOLS)
    assert "noon" in second.content[0].text  # type: ignore[union-attr]


@pytest.mark.parametrize("more", [
    {}, {"tools": []}, {"tool_choice": {"type": "none"}}, {"tool_choice": {"type": "any"}},
    {"tool_choice": {"type": "tool", "name": "now"}}, {"chat_template_kwargs": {"style": "terse"}},
    {"thinking": {"type": "enabled", "budget_tokens": 5}}, {"truncate_prompt_tokens": 7},
])  # fmt: skip
def test_the_tokens_that_are_counted_are_those_of_the_prompt(writing: Front, more: dict[str, Any]) -> None:
    asked = call("a", max_tokens=1) | more
    usage = writing.post(URL, asked).json()["usage"]
    used = usage["input_tokens"] + usage["cache_creation_input_tokens"] + usage["cache_read_input_tokens"]
    counted = writing.post(COUNT, {name: value for name, value in asked.items() if name != "max_tokens"})
    assert counted.json() == {"input_tokens": used}


@pytest.fixture(scope="module")
def writing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """A front whose template writes the tools and two variables, and knows calls."""
    folder = tmp_path_factory.mktemp("writing")
    template = (
        "{{ tools }}{{ style }}{{ enable_thinking }}{{ messages[-1].content }}{% if false %}<tool_call>{% endif %}"
    )
    running = start_front(folder, model=write_model(folder / "model", template))
    yield running
    running.process.kill()
    running.process.wait()


def test_variables_reach_the_template_and_count_before_thinking(writing: Front) -> None:
    def said(**more: Any) -> str:
        text: str = writing.post(URL, ask("a", thinking={"type": "enabled"}, **more)).json()["content"][0]["text"]
        return text

    assert said() == "Truea"
    assert said(chat_template_kwargs={"style": "terse"}) == "terseTruea"
    assert said(chat_template_kwargs={"enable_thinking": False}) == "Falsea"
    reply = writing.post("/v1/responses", {"input": "a", "chat_template_kwargs": {"style": "terse"}})
    assert reply.json()["output"][0]["content"][0]["text"] == "tersea"


def test_blocks_of_one_turn_are_messages_of_the_chat(own_front: Callable[..., Front], tmp_path: Path) -> None:
    template = (
        "{% for turn in messages %}[{{ turn.role }} {{ turn.reasoning_content }} {{ turn.content }}"
        "{% for call in turn.tool_calls %} {{ call.id }}={{ call.function.name }}{{ call.function.arguments.a }}"
        "{% endfor %} {{ turn.tool_call_id }}]{% endfor %}{{ tools }}"
    )
    front = own_front(model=write_model(tmp_path / "reads", template))
    messages = [
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "why", "signature": ""},
                {"type": "text", "text": "t"},
                {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
                {"type": "tool_use", "id": "c2", "name": "f", "input": {"a": 2}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "one", "is_error": True},
                {"type": "tool_result", "tool_use_id": "c2"},
                {"type": "text", "text": "and"},
            ],
        },
    ]
    reply = front.post(URL, ask("", messages=messages, max_tokens=500))
    assert reply.json()["content"][0]["text"] == (
        "[user  q ][assistant why t c1=f1 c2=f2 ][tool  one c1][tool   c2][user  and ]"
    )
    assert reply.headers["x-ignored-fields"] == "messages[].content[].is_error"


def test_choices_of_tools(tool_front: Front) -> None:
    none = tool_front.post(URL, call(CALLS, tool_choice={"type": "none"})).json()
    assert (none["stop_reason"], none["content"][0]["text"]) == ("end_turn", CALLS)
    one = tool_front.post(URL, call(CALLS, tool_choice={"type": "auto", "disable_parallel_tool_use": True})).json()
    assert [block["type"] for block in one["content"]] == ["text", "tool_use"]
    unknown = tool_front.post(URL, call("x", tool_choice={"type": "tool", "name": "g"}))
    assert refused(unknown)[3] == "tool_choice.name"
    schema = tool_front.post(URL, ask("x", tools=[{"name": "f", "input_schema": {"type": "array"}}]))
    assert refused(schema)[3] == "tools[0].input_schema"


def test_a_call_that_its_limit_cuts_keeps_its_text(tool_front: Front) -> None:
    message = checked_message(tool_front.post(URL, call(CALLS, max_tokens=80)).json())
    assert message.stop_reason == "max_tokens"
    used = message.content[-1]
    assert used.type == "tool_use"
    assert set(used.input) <= {"arguments"}


def test_thoughts_are_a_block_of_their_own_and_are_counted(thinking_front: Front) -> None:
    message = checked_message(thinking_front.post(URL, ask(THOUGHT)).json())
    thinking, text = message.content
    assert thinking.type == "thinking"
    assert text.type == "text"
    assert (thinking.thinking, text.text) == ("1 + 1é", "Two.")
    assert message.usage.output_tokens_details is not None
    assert message.usage.output_tokens_details.thinking_tokens == THOUGHT_TOKENS
    events = events_of(thinking_front.post(URL, ask(THOUGHT, stream=True)).text)
    checked_events(events)
    assert {event["delta"]["type"] for event in events if event["type"] == "content_block_delta"} == {
        "thinking_delta", "text_delta",
    }  # fmt: skip


def test_a_budget_of_thoughts_is_held_and_named_where_it_has_no_effect(thinking_front: Front, front: Front) -> None:
    thinking = {"type": "enabled", "budget_tokens": 3}
    reply = thinking_front.post(URL, ask(THOUGHT, thinking=thinking))
    thought, text = checked_message(reply.json()).content
    assert (thought.type, text.type) == ("thinking", "text")
    assert (thought.thinking, text.text) == ("1", "1é\n</think>\n\nTwo.")
    assert "budget" not in reply.headers.get("x-ignored-fields", "")
    adaptive = thinking_front.post(URL, ask(THOUGHT, thinking=thinking | {"type": "adaptive"}))
    assert "thinking.budget_tokens" in adaptive.headers["x-ignored-fields"]
    wrong = front.post(URL, ask("a", thinking=thinking | {"budget_tokens": -1}))
    assert refused(wrong)[3] == "thinking.budget_tokens"


def test_thinking_is_switched_where_the_template_can(
    own_front: Callable[..., Front], tmp_path: Path, front: Front
) -> None:
    template = "{{ messages[-1].content }}{{ enable_thinking }}"
    switch = own_front(model=write_model(tmp_path / "switch", template))
    for thinking, said in (
        ({"type": "enabled", "budget_tokens": 2000}, "True"),
        ({"type": "disabled"}, "False"),
        ({"type": "adaptive"}, ""),
    ):
        assert switch.post(URL, ask("a", thinking=thinking)).json()["content"][0]["text"] == f"a{said}"
    effort = switch.post(URL, ask("a", output_config={"effort": "high"}))
    assert effort.json()["content"][0]["text"] == "aTrue"
    plain = front.post(
        URL, ask("a", thinking={"type": "enabled", "budget_tokens": 2000}, output_config={"effort": "low"})
    )
    assert plain.headers["x-ignored-fields"] == "thinking.budget_tokens, thinking, output_config.effort"


def test_thoughts_of_earlier_turns_that_no_template_reads_are_named(front: Front) -> None:
    thinking = {"type": "thinking", "thinking": "why", "signature": "x"}
    messages = [
        {"role": "assistant", "content": [thinking, {"type": "text", "text": "a"}]},
        {"role": "user", "content": "b"},
    ]
    reply = front.post(URL, ask("", messages=messages))
    assert reply.json()["content"][0]["text"] == "ab"
    assert reply.headers["x-ignored-fields"] == "messages[].content[].thinking"
