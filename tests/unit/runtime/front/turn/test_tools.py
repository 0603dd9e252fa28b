"""Tools over the wire: the scripted engine answers with the prompt's own tokens, so a prompt that spells calls is an
answer that makes them.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from graphpod_policy import ReasoningParser, ServingConfig, ToolParser

from ..conftest import Front, byte_tokenizer, start_front, write_model
from ..test_openai import CHAT, error_of, say

LAST = "{{ messages[-1].content }}"
"""A template that reads no tools: they go into the first message, which it leaves out."""

CALLS = (
    'I look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich 😀"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
)
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather.", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "now"}},
]


@pytest.fixture(scope="module")
def tool_front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """A front whose answers are the last message."""
    folder = tmp_path_factory.mktemp("tools")
    running = start_front(folder, model=write_model(folder / "model", LAST))
    yield running
    running.process.kill()
    running.process.wait()


def test_calls_are_read_from_an_answer(tool_front: Front) -> None:
    reply = tool_front.client().chat.completions.create(**say(CALLS, tools=TOOLS))
    (choice,) = reply.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "I look.")
    calls = choice.message.tool_calls or []
    assert [(call.type, call.function.name, json.loads(call.function.arguments)) for call in calls] == [  # type: ignore[union-attr]
        ("function", "get_weather", {"city": "Zürich 😀"}),
        ("function", "now", {}),
    ]
    assert len({call.id for call in calls}) == 2
    assert all(call.id.startswith("call_") for call in calls)


def test_calls_are_streamed_name_first_then_arguments(tool_front: Front) -> None:
    stream = tool_front.client().chat.completions.create(**say(CALLS, tools=TOOLS), stream=True)
    deltas, reasons, content = [], [], ""
    for chunk in stream:
        (choice,) = chunk.choices
        reasons.append(choice.finish_reason)
        content += choice.delta.content or ""
        deltas += choice.delta.tool_calls or []
    assert reasons == [None] * (len(reasons) - 1) + ["tool_calls"]
    assert content == "I look."
    begun = [delta for delta in deltas if delta.id]
    assert [(delta.index, delta.type, delta.function.name, delta.function.arguments) for delta in begun] == [  # type: ignore[union-attr]
        (0, "function", "get_weather", ""),
        (1, "function", "now", ""),
    ]
    arguments = ["", ""]
    for delta in deltas:
        if not delta.id:
            assert delta.function is not None
            assert (delta.type, delta.function.name) == (None, None)
            arguments[delta.index] += delta.function.arguments or ""
    assert arguments == ['{"city": "Zürich 😀"}', "{}"]
    assert sum(not delta.id and delta.index == 0 for delta in deltas) > 1, "arguments come in pieces"


def test_a_call_whose_name_and_arguments_come_together_has_two_events(tool_front: Front) -> None:
    late = '<tool_call>{"arguments": {"city": "Kyiv"}, "name": "get_weather"}</tool_call>'
    body = say(late + late, tools=TOOLS)
    entries = [
        entry
        for chunk in tool_front.client().chat.completions.create(**body, stream=True)
        for choice in chunk.choices
        if (entry := choice.delta.tool_calls)
    ]
    assert [[(one.index, one.function.arguments) for one in entry] for entry in entries] == [  # type: ignore[union-attr]
        [(0, "")],
        [(0, '{"city": "Kyiv"}')],
        [(1, "")],
        [(1, '{"city": "Kyiv"}')],
    ]
    with tool_front.client().chat.completions.stream(**body) as helper:
        [choice] = helper.get_final_completion().choices
    calls = choice.message.tool_calls or []
    assert [(call.function.name, call.function.arguments) for call in calls] == [
        ("get_weather", '{"city": "Kyiv"}')
    ] * 2


def test_without_tools_or_with_choice_none_calls_are_text(tool_front: Front) -> None:
    for more in ({}, {"tools": TOOLS, "tool_choice": "none"}):
        (choice,) = tool_front.post(CHAT, say(CALLS, **more)).json()["choices"]
        assert (choice["finish_reason"], choice["message"]["content"]) == ("stop", CALLS)
        assert "tool_calls" not in choice["message"]


def test_without_parallel_calls_there_is_one(tool_front: Front) -> None:
    (choice,) = tool_front.post(CHAT, say(CALLS, tools=TOOLS, parallel_tool_calls=False)).json()["choices"]
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["get_weather"]


def test_an_answer_that_is_cut_in_a_call_says_so(tool_front: Front) -> None:
    (choice,) = tool_front.post(CHAT, say(CALLS, tools=TOOLS, max_tokens=80)).json()["choices"]
    assert choice["finish_reason"] == "length"
    (call,) = choice["message"]["tool_calls"]
    assert '{"city": "Zürich 😀"}'.startswith(call["function"]["arguments"])


def test_malformed_calls_are_text(tool_front: Front) -> None:
    text = '<tool_call>{"name": get_weather}</tool_call>'
    (choice,) = tool_front.post(CHAT, say(text, tools=TOOLS)).json()["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("stop", text)


def test_tools_and_calls_reach_a_template_that_has_no_place_for_them(front: Front) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Time?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "noon"},
        {"role": "tool", "tool_call_id": "2", "content": "UTC"},
    ]
    found = front.post("/tokenize", {"messages": messages, "tools": TOOLS}).json()["tokens"]
    text = front.post("/detokenize", {"tokens": found}).json()["prompt"]
    system, rest = text.split("</tool_call>Time?")
    assert system.startswith("Be brief.\n\n# Tools\n")
    assert json.dumps(TOOLS[0]) in system
    assert rest == (
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
        "<tool_response>\nnoon\n</tool_response>\n<tool_response>\nUTC\n</tool_response>"
    )


def nested(levels: int) -> dict[str, Any]:
    """A schema of so many levels."""
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def tool(**function: Any) -> dict[str, Any]:
    """One tool."""
    return {"type": "function", "function": {"name": "f"} | function}


@pytest.mark.parametrize(
    ("more", "param", "message"),
    [
        ({"tools": []}, "tools", "at least 1 item"),
        ({"tools": [tool()] * 129}, "tools", "at most 128"),
        ({"tools": [tool(), tool()]}, "tools", "2 tools have the name 'f'"),
        ({"tools": [tool(name='a"b')]}, "tools[0].function.name", "pattern"),
        ({"tools": [tool(name="")]}, "tools[0].function.name", "at least 1 character"),
        ({"tools": [tool(name="x" * 129)]}, "tools[0].function.name", "at most 128 characters"),
        ({"tools": [{"type": "retrieval"}]}, "tools[0].type", "function"),
        ({"tools": [tool(parameters=[])]}, "tools[0].function.parameters", "valid dictionary"),
        ({"tools": [tool(parameters={"type": "array"})]}, "tools[0].function.parameters", 'type must be "object"'),
        ({"tools": [tool(parameters=nested(20))]}, "tools[0].function.parameters", "32 levels"),
        ({"tools": [tool(description="x" * (1 << 20))]}, "tools", "at most 1048576"),
        ({"tools": [tool(parameters={"description": "\ud800"})]}, "tools", "half a surrogate pair"),
        ({"tool_choice": "required"}, "tool_choice", "only allowed with tools"),
        ({"tools": [tool()], "tool_choice": "some"}, "tool_choice", "'none', 'auto' or 'required'"),
        ({"tools": [tool()], "tool_choice": {}}, "tool_choice.type", "required"),
        (
            {"tools": [tool()], "tool_choice": {"type": "function", "function": {"name": "g"}}},
            "tool_choice.function.name",
            "no tool has the name 'g'; tools has: f",
        ),
        ({"functions": [{"name": "f"}]}, "functions", "send tools instead"),
    ],
)
def test_tools_that_cannot_be_used_are_refused(
    tool_front: Front, more: dict[str, Any], param: str, message: str
) -> None:
    response = tool_front.post(CHAT, say("x", **more))
    error = error_of(response)
    assert (response.status_code, error["param"]) == (400, param), error
    assert message in error["message"]


def test_128_tools_of_many_bytes_are_refused_before_they_cost_much(tool_front: Front) -> None:
    tools = [tool(name=f"f{at}", description="x" * 9_000) for at in range(128)]
    error = error_of(tool_front.post(CHAT, say("x", tools=tools)))
    assert (error["param"], "at most 1048576" in error["message"]) == ("tools", True)


def test_unknown_fields_of_tools_are_named_in_the_header(tool_front: Front) -> None:
    response = tool_front.post(CHAT, say("x", tools=[tool(cache_control=1) | {"eager": True}]))
    assert response.headers["x-ignored-fields"] == "tools[].eager, tools[].function.cache_control"


def test_the_model_sees_the_allowed_tools_only(front: Front) -> None:
    choice = {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "now"}}]},
    }
    (answer,) = front.post(CHAT, say("x", tools=TOOLS, tool_choice=choice)).json()["choices"]
    # The answer is the prompt, whose list of tools reads as no call.
    assert ('"now"' in answer["message"]["content"], "get_weather" in answer["message"]["content"]) == (True, False)


THINKS = "{{ messages[-1].content }}{% if false %}<think></think>{{ enable_thinking }}{% endif %}"


@pytest.fixture(scope="module")
def thinking_front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """A front whose answers are the last message, of a model that reasons."""
    folder = tmp_path_factory.mktemp("thinking")
    model = write_model(folder / "model", THINKS)
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.save(str(model / "tokenizer.json"))
    running = start_front(folder, model=model)
    yield running
    running.process.kill()
    running.process.wait()


THOUGHT = "<think>\n1 + 1é\n</think>\n\nTwo."
THOUGHT_TOKENS = len("\n1 + 1é\n".encode())


def test_reasoning_stands_in_its_own_fields_and_is_counted(thinking_front: Front) -> None:
    reply = thinking_front.post(CHAT, say(THOUGHT)).json()
    message = reply["choices"][0]["message"]
    assert (message["content"], message["reasoning"], message["reasoning_content"]) == ("Two.", "1 + 1é", "1 + 1é")
    assert reply["usage"]["completion_tokens_details"]["reasoning_tokens"] == THOUGHT_TOKENS


def test_reasoning_is_streamed_in_its_own_fields(thinking_front: Front) -> None:
    options = {"include_usage": True}
    stream = thinking_front.client().chat.completions.create(**say(THOUGHT), stream=True, stream_options=options)
    reasoning = content = ""
    for chunk in stream:
        for choice in chunk.choices:
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            assert getattr(choice.delta, "reasoning", None) == getattr(choice.delta, "reasoning_content", None)
            content += choice.delta.content or ""
        usage = chunk.usage
    assert (reasoning, content) == ("1 + 1é", "Two.")
    assert usage is not None
    assert usage.completion_tokens_details is not None
    assert usage.completion_tokens_details.reasoning_tokens == THOUGHT_TOKENS


def test_reasoning_can_be_left_out(thinking_front: Front) -> None:
    reply = thinking_front.post(CHAT, say(THOUGHT, include_reasoning=False)).json()
    assert reply["choices"][0]["message"] == {"role": "assistant", "content": "Two."}
    assert reply["usage"]["completion_tokens_details"]["reasoning_tokens"] == THOUGHT_TOKENS
    error = error_of(thinking_front.post(CHAT, say(THOUGHT, include_reasoning=False, logprobs=True)))
    assert error["param"] == "include_reasoning"


@pytest.mark.parametrize("field", ["thinking_token_budget", "thinking_budget"])
def test_after_its_budget_the_reasoning_is_closed_and_the_answer_goes_on(thinking_front: Front, field: str) -> None:
    """The scripted model does not hear of it: it goes on with its text, which is the answer then."""
    reply = thinking_front.post(CHAT, say(THOUGHT, **{field: 3})).json()
    message = reply["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == ("1", "1é\n</think>\n\nTwo.")
    assert reply["usage"]["completion_tokens_details"]["reasoning_tokens"] == 3


def test_a_budget_holds_for_each_choice_of_a_stream(thinking_front: Front) -> None:
    stream = thinking_front.client().chat.completions.create(
        **say(THOUGHT), n=2, stream=True, extra_body={"thinking_token_budget": 3}
    )
    thoughts = {0: "", 1: ""}
    for chunk in stream:
        for choice in chunk.choices:
            thoughts[choice.index] += (choice.delta.model_extra or {}).get("reasoning") or ""
    assert thoughts == {0: "1", 1: "1"}


@pytest.mark.parametrize("budget", [-1, 9, 2**31 - 1])
def test_a_budget_that_is_not_used_up_changes_nothing(thinking_front: Front, budget: int) -> None:
    assert THOUGHT_TOKENS <= 9
    reply = thinking_front.post(CHAT, say(THOUGHT, thinking_token_budget=budget)).json()
    assert reply["choices"][0]["message"]["content"] == "Two."


def test_a_budget_is_refused_where_its_end_is_not_allowed_or_it_is_no_number_of_tokens(thinking_front: Front) -> None:
    body = say(THOUGHT, thinking_token_budget=3, allowed_token_ids=[1, 2])
    assert error_of(thinking_front.post(CHAT, body))["param"] == "thinking_token_budget"
    for wrong in (-2, 2**31, 1.5, "3", True):
        assert thinking_front.post(CHAT, say(THOUGHT, thinking_token_budget=wrong)).status_code == 400


def test_reasoning_of_earlier_turns_reaches_a_template_that_reads_it(
    own_front: Callable[..., Front], tmp_path: Path
) -> None:
    template = (
        "{% for turn in messages %}{{ turn.reasoning_content }}|{{ turn.content }}{% endfor %}{{ enable_thinking }}"
    )
    front = own_front(model=write_model(tmp_path / "reads", template))
    messages = [{"role": "assistant", "content": "a", "reasoning": "why"}, {"role": "user", "content": "b"}]
    body = {"model": "echo", "messages": messages, "reasoning_effort": "none"}
    response = front.post(CHAT, body)
    assert response.json()["choices"][0]["message"]["content"] == "why|a|bFalse"
    assert "x-ignored-fields" not in response.headers


def test_a_model_that_does_not_reason_takes_the_switch_off_and_refuses_it_on(front: Front) -> None:
    body = say("b", chat_template_kwargs={"enable_thinking": False})
    assert front.post(CHAT, body).json()["choices"][0]["message"]["content"] == "b"
    for refused in ({"enable_thinking": True}, {"enable_thinking": 0}, {"other": False}):
        assert error_of(front.post(CHAT, say("b", chat_template_kwargs=refused)))["param"] == "chat_template_kwargs"


def test_reasoning_of_earlier_turns_that_no_template_reads_is_named_in_the_header(front: Front) -> None:
    turn = {"role": "assistant", "content": "a", "reasoning_content": "why"}
    response = front.post(CHAT, {"model": "echo", "messages": [turn, {"role": "user", "content": "b"}]})
    assert response.json()["choices"][0]["message"]["content"] == "ab"
    assert response.headers["x-ignored-fields"] == "messages[].reasoning_content"


def test_the_parsers_are_switched_off_by_the_configuration(own_front: Callable[..., Front], tmp_path: Path) -> None:
    off = ServingConfig(tool_parser=ToolParser.Off, reasoning_parser=ReasoningParser.Off)
    front = own_front(model=write_model(tmp_path / "off", THINKS), serving=off)
    assert front.post(CHAT, say(THOUGHT)).json()["choices"][0]["message"]["content"] == THOUGHT
    error = error_of(front.post(CHAT, say("x", tools=TOOLS)))
    assert (error["param"], "spec.engine.toolParser" in error["message"]) == ("tool_choice", True)


def test_a_parser_is_named_by_the_configuration(own_front: Callable[..., Front], tmp_path: Path) -> None:
    named = ServingConfig(tool_parser=ToolParser.Pythonic)
    front = own_front(model=write_model(tmp_path / "named", LAST), serving=named)
    (choice,) = front.post(CHAT, say("[now()]", tools=TOOLS)).json()["choices"]
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["now"]
