"""The grammars of turns: what they let through, token by token, on SmolLM2's vocabulary."""

from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer

from demo.weights import model_folder
from graphpod_runtime.front.openai.turn.grammar import after_reasoning, grammar_of_calls
from graphpod_runtime.front.openai.turn.tool_fields import Tool, ToolUse
from graphpod_runtime.front.openai.turn.turn_form import form_of
from graphpod_runtime.front.requests.errors import ApiError
from graphpod_runtime.front.text.turn.family import Family
from graphpod_runtime.front.text.turn.turn_parser import TurnForm
from graphpod_runtime.grammar.bounds import GrammarInvalid
from graphpod_runtime.grammar.compile import compiled
from graphpod_runtime.grammar.source import source_of
from graphpod_runtime.grammar.vocabulary import read_vocabulary
from graphpod_runtime.wire.messages import Grammar, GrammarKind

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"$ref": "#/$defs/Unit"}},
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"Unit": {"enum": ["c", "f"]}},
}


def tools(**more: Any) -> tuple[Tool, ...]:
    """Two tools."""
    weather = {"function": {"name": "get_weather", "parameters": WEATHER, **more}}
    return tuple(Tool.model_validate(tool) for tool in (weather, {"function": {"name": "now"}}))


TOOLS = tools()
PLAIN = Family.of("Hermes", "None", "", knows_tools=True)
THINKS = Family.of("Hermes", "Think", "", knows_tools=True)


@pytest.fixture(scope="module")
def vocabulary() -> LLTokenizer:
    return read_vocabulary(model_folder())


def fits(vocabulary: LLTokenizer, grammar: Grammar, text: str) -> bool:
    """Whether the whole text is an answer."""
    matcher = LLMatcher(vocabulary, source_of(grammar, vocabulary), log_level=0)
    assert not matcher.get_error(), matcher.get_error()
    return all(map(matcher.consume_token, vocabulary.tokenize_str(text))) and matcher.is_accepting()


PARIS = '{"city": "Paris"}'
NAMED = ToolUse(TOOLS, "required", "get_weather")
REQUIRED = ToolUse(TOOLS, "required")
LIST = '[{"name": "now", "parameters": {}}, {"name": "get_weather", "parameters": {"city": "x", "unit": "c"}}]'

FORCED = (
    (NAMED, PARIS, True),
    (NAMED, '{"city": 5}', False),
    (NAMED, "Sure.", False),
    (REQUIRED, LIST, True),
    (REQUIRED, "[]", False),
    (REQUIRED, '[{"name": "other", "parameters": {}}]', False),
    (REQUIRED, '[{"name": "get_weather", "parameters": {}}]', False),
    (REQUIRED, '[{"name": "now", "parameters": {"at": 1}}]', False),
    (ToolUse(TOOLS, "required", parallel=False), LIST, False),
    (ToolUse(TOOLS[1:], "required", parallel=False), '[{"name": "now", "parameters": {}}]', True),
)


@pytest.mark.parametrize(("use", "text", "right"), FORCED)
def test_forced_calls_fit_their_tools(vocabulary: LLTokenizer, use: ToolUse, text: str, right: bool) -> None:
    grammar = grammar_of_calls(use, PLAIN, TurnForm())
    assert grammar is not None
    assert fits(vocabulary, grammar, text) is right


@pytest.mark.parametrize(
    ("end", "text", "right"),
    [
        ("", f"<think>hm</think>\n\n{PARIS}", True),
        ("", PARIS, True),
        ("", f"hm</think>{PARIS}", False),
        ("<think>\n", f"hm\n</think>\n\n{PARIS}", True),
        ("<think>\n", PARIS, False),
        ("<think>\n\n</think>\n\n", PARIS, True),
    ],
)
def test_forced_calls_and_structured_output_come_after_reasoning(
    vocabulary: LLTokenizer, end: str, text: str, right: bool
) -> None:
    form = form_of(THINKS, NAMED, end)
    forced = grammar_of_calls(NAMED, THINKS, form)
    assert forced is not None
    for grammar in (
        forced,
        after_reasoning(Grammar("json_schema", '{"type": "object"}'), form),
        after_reasoning(Grammar("json_object"), form),
        after_reasoning(Grammar("choice", '["{\\"city\\": \\"Paris\\"}", "a|b"]'), form),
        after_reasoning(Grammar("regex", r"\{.*\}"), form),
        after_reasoning(Grammar("ebnf", 'root ::= "{" [^}]* "}"'), form),
    ):
        assert fits(vocabulary, grammar, text) is right, grammar.kind


def test_a_grammar_is_as_it_was_for_a_model_that_does_not_reason() -> None:
    grammar = Grammar("regex", "a+")
    assert after_reasoning(grammar, TurnForm()) is grammar


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("No call.", True),
        (f'I call.\n<tool_call>\n{{"name": "get_weather", "arguments": {PARIS}}}\n</tool_call>\nDone.', True),
        ('<tool_call>\n{"name": "get_weather", "arguments": {"city": 5}}\n</tool_call>', False),
        ('<tool_call>\n{"name": "now", "arguments": {"any": [1]}}\n</tool_call>', True),
        ('<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>', False),
    ],
)
def test_strict_calls_fit_their_schemas_within_any_text(vocabulary: LLTokenizer, text: str, right: bool) -> None:
    use = ToolUse(tools(strict=True), "auto")
    grammar = grammar_of_calls(use, PLAIN, TurnForm())
    assert grammar is not None
    assert fits(vocabulary, grammar, text) is right


def test_tools_that_are_neither_forced_nor_strict_need_no_grammar() -> None:
    assert grammar_of_calls(ToolUse(TOOLS, "auto"), PLAIN, TurnForm()) is None
    assert grammar_of_calls(ToolUse(tools(strict=True), "none"), PLAIN, TurnForm()) is None


def test_strict_is_refused_where_no_grammar_holds_the_familys_calls() -> None:
    family = Family.of("Pythonic", "None", "", knows_tools=True)
    with pytest.raises(ApiError, match="of a form that no grammar"):
        grammar_of_calls(ToolUse(tools(strict=True), "auto"), family, TurnForm())


def test_128_tools_fit_one_grammar(vocabulary: LLTokenizer) -> None:
    many = tuple(Tool.model_validate({"function": {"name": f"f{at}"}}) for at in range(128))
    grammar = grammar_of_calls(ToolUse(many, "required"), PLAIN, TurnForm())
    assert grammar is not None
    assert fits(vocabulary, grammar, '[{"name": "f127", "parameters": {}}]')


def test_a_schema_may_be_true_or_false(vocabulary: LLTokenizer) -> None:
    assert fits(vocabulary, Grammar("json_schema", "true"), "[1]")
    with pytest.raises(GrammarInvalid):
        compiled(vocabulary, Grammar("json_schema", "false"))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("json_schema", "{"),
        ("json_schema", "[" * 100_000),
        ("structural_tag", "[]"),
        ("structural_tag", '{"triggers": ["a"]}'),
        ("structural_tag", '{"structures": [{}], "triggers": ["a"]}'),
        ("structural_tag", '{"format": 3}'),
        ("json_schema", " " * 600_000 + "{}"),
    ],
)
def test_a_grammar_that_cannot_be_taken_apart_is_refused_before_reasoning_is_put_to_it(
    kind: GrammarKind, text: str
) -> None:
    with pytest.raises(GrammarInvalid):
        after_reasoning(Grammar(kind, text), form_of(THINKS, NAMED, "<think>\n"))
