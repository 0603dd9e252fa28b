"""Turns of every family, cut in every way."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpod_policy import ReasoningParser, ToolParser
from graphpod_runtime.front.text.turn.formats import HARMONY, REASONING_FORMATS, TOOL_FORMATS
from graphpod_runtime.front.text.turn.parts import Turn, joined
from graphpod_runtime.front.text.turn.turn_parser import TurnForm, TurnParser

from .examples import TEXTS, TOOL_EXAMPLES, TOOLS, Example

FORMATS = {form.name: form for form in TOOL_FORMATS}
THINK = {form.name: form for form in REASONING_FORMATS}["Think"]


def form_of(name: str, **more: Any) -> TurnForm:
    """The turns of a family, with tools."""
    return TurnForm(calls=FORMATS.get(name), tools=TOOLS, harmony=name == "Harmony", **more)


def read(form: TurnForm, *pieces: str) -> Turn:
    """The turn that the pieces make."""
    numbers = itertools.count()
    parser = TurnParser(form, lambda: f"call_{next(numbers)}")
    parts = [part for piece in pieces for part in parser.feed(piece)]
    return joined([*parts, *parser.flush()])


@pytest.mark.parametrize("example", TOOL_EXAMPLES, ids=lambda one: one.format)
def test_an_example_of_a_family_is_read(example: Example) -> None:
    turn = read(form_of(example.format), example.text)
    assert [(call.name, json.loads(call.arguments)) for call in turn.calls] == [
        (name, json.loads(arguments)) for name, arguments in example.calls
    ]
    assert (turn.content, turn.reasoning) == (example.content, example.reasoning)


@pytest.mark.parametrize("example", TOOL_EXAMPLES, ids=lambda one: one.format)
def test_an_example_letter_by_letter_is_the_same(example: Example) -> None:
    form = form_of(example.format)
    assert read(form, *example.text) == read(form, example.text)


@pytest.mark.parametrize(("name", "text"), TEXTS)
def test_what_is_no_call_stays_text(name: str, text: str) -> None:
    assert read(form_of(name), text) == read(form_of(name), *text) == Turn(text, "", ())


def test_the_formats_are_those_that_a_service_may_name() -> None:
    assert {*FORMATS, HARMONY, "Auto", "None"} == {*ToolParser}
    assert {*(form.name for form in REASONING_FORMATS), HARMONY, "Auto", "None"} == {*ReasoningParser}


def test_every_format_has_an_example() -> None:
    assert {example.format for example in TOOL_EXAMPLES} == FORMATS.keys() | {"Harmony"}


ALPHABET = st.sampled_from(
    [
        *{mark for form in TOOL_FORMATS for mark in form.marks if mark},
        *("<think>", "</think>", "<|channel|>", "<|message|>", "<|end|>", "<|start|>", "analysis", "to=functions.now"),
        *('{"name": "now", "arguments": {', '"a": 1}}', "now(", "a='x')", "[", "]", "{", "}", '"', "\\"),
        *(",", ";", "\n", "now", " ", "é", "😀", "x", "<", "｜", "function", "```json\n", "</", "name", ":"),
    ]
)  # fmt: skip
NAMES = st.sampled_from([*FORMATS, "Harmony"])


@st.composite
def cuts(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A text that is almost a turn, and pieces of it."""
    text = "".join(draw(st.lists(ALPHABET, max_size=30)))
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    return text, [text[start:end] for start, end in itertools.pairwise([0, *places, len(text)])]


@given(cuts(), NAMES, st.booleans(), st.booleans(), st.sampled_from([None, None, "", "now"]))
def test_cuts_change_nothing(
    cut: tuple[str, list[str]], name: str, reasons: bool, thinks: bool, forced: str | None
) -> None:
    text, pieces = cut
    form = form_of(name, reasoning=THINK if reasons else None, thinks=thinks and reasons, forced=forced)
    assert read(form, *pieces) == read(form, text)


@given(cuts(), NAMES)
def test_a_turn_without_calls_is_the_text(cut: tuple[str, list[str]], name: str) -> None:
    text, pieces = cut
    if name != "Harmony":
        turn = read(form_of(name), *pieces)
        assert turn.calls or turn.content == text


@given(
    st.lists(
        st.tuples(
            st.text(max_size=8).filter(lambda t: "<" not in t), st.sampled_from(sorted(TOOLS)), st.text(max_size=12)
        )
    )
)
def test_text_and_calls_of_a_turn_come_out_as_they_went_in(turns: list[tuple[str, str, str]]) -> None:
    written = "".join(
        f"{text}<tool_call>{json.dumps({'name': name, 'arguments': {'city': value}})}</tool_call>"
        for text, name, value in turns
    )
    turn = read(form_of("Hermes"), written)
    assert [(call.name, json.loads(call.arguments)) for call in turn.calls] == [
        (name, {"city": value}) for _, name, value in turns
    ]
    assert "".join(turn.content.split()) == "".join("".join(text.split()) for text, _, _ in turns)


def test_a_call_is_reported_as_soon_as_its_name_and_arguments_begin() -> None:
    parser = TurnParser(form_of("Hermes"), lambda: "id")
    assert parser.feed('<tool_call>{"name": "now", "arguments": ') == []
    begun = parser.feed('{"a')
    assert [type(part).__name__ for part in begun] == ["CallBegun", "CallArguments"]
    assert parser.feed('": 1')[0].text == '": 1'  # type: ignore[union-attr]


THOUGHTS = (
    ("<think>\nhm\n</think>\n\n4", False, "hm", "4"),
    ("hm</think>4", True, "hm", "4"),
    ("hm", True, "hm", ""),
    ("4", False, "", "4"),
    (" 4 ", False, "", " 4 "),
    ("<think></think>4", False, "", "4"),
    ("4 <think>5</think>", False, "", "4 <think>5</think>"),
    ("<think>a</thi", False, "a</thi", ""),
)  # fmt: skip


@pytest.mark.parametrize(("text", "thinks", "reasoning", "content"), THOUGHTS)
def test_reasoning_stands_apart(text: str, thinks: bool, reasoning: str, content: str) -> None:
    form = TurnForm(reasoning=THINK, thinks=thinks)
    assert read(form, text) == read(form, *text) == Turn(content, reasoning, ())


def test_a_call_ends_reasoning_that_has_no_end() -> None:
    text = '<think>I call.<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    turn = read(form_of("Hermes", reasoning=THINK), text)
    assert (turn.reasoning, turn.content, [call.name for call in turn.calls]) == ("I call.", "", ["now"])


def test_an_end_of_reasoning_within_arguments_is_theirs() -> None:
    text = 'hm</think><tool_call>{"name": "now", "arguments": {"a": "</think><think>"}}</tool_call>'
    turn = read(form_of("Hermes", reasoning=THINK, thinks=True), text)
    assert [call.arguments for call in turn.calls] == ['{"a": "</think><think>"}']


FORCED = (
    ("get_weather", ' {"city": "Paris"}', [("get_weather", '{"city": "Paris"}')], ""),
    ("get_weather", '{"city": "Pa', [("get_weather", '{"city": "Pa')], ""),
    ("now", "{}", [("now", "{}")], ""),
    ("now", '{"', [], '{"'),
    ("", '[{"name": "get_weather", "parameters": {"city": "Paris"}}, {"name": "now", "parameters": {}}]', [
        ("get_weather", '{"city": "Paris"}'), ("now", "{}")], ""),
    ("", '[{"name": "now", "parameters": {}}, {"name": "get_wea', [("now", "{}")], ""),
    ("", "[", [], "["),
)  # fmt: skip


@pytest.mark.parametrize(("forced", "text", "calls", "content"), FORCED)
def test_forced_calls_are_read_as_the_grammar_writes_them(
    forced: str, text: str, calls: list[tuple[str, str]], content: str
) -> None:
    for form in (form_of("Hermes", forced=forced), TurnForm(tools=TOOLS, forced=forced)):
        turn = read(form, text)
        assert turn == read(form, *text)
        assert [(call.name, call.arguments) for call in turn.calls] == calls
        assert turn.content == content


DEEP = 100_000


@pytest.mark.parametrize(
    ("name", "text", "calls"),
    [
        ("Hermes", '<tool_call>{"name": "now", "arguments": {"a": ' + "[" * DEEP, 1),
        ("Hermes", "<tool_call>" * 10_000, 0),
        ("Hermes", '<tool_call>{"arguments": {' + '"a": {' * DEEP, 0),
        ("Hermes", '<tool_call>{"id": ' + "[" * DEEP, 0),
        ("Pythonic", "[now(a=" + "[" * DEEP, 0),
        ("Qwen3Coder", "<tool_call><function=now><parameter=a>" + "[" * DEEP + "</parameter></function>", 1),
        ("Harmony", "<|channel|>" * 10_000, 0),
        ("Mistral", "[TOOL_CALLS][" * 10_000, 0),
    ],
)
def test_deep_nesting_costs_no_stack(name: str, text: str, calls: int) -> None:
    turn = read(form_of(name), text)
    assert len(turn.calls) == calls
    assert calls or turn.content == text
    assert read(form_of(name), *(text[at : at + 7] for at in range(0, len(text), 7))) == turn
