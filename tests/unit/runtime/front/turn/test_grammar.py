"""The grammars of turns: what they let through, token by token, on SmolLM2's vocabulary."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import jsonschema
import pytest
from llguidance import LLMatcher, LLTokenizer

from demo.weights import model_folder
from graphpod_policy import ToolParser
from graphpod_runtime.front.openai.turn.grammar import after_reasoning, answer_or_calls, grammar_of_calls
from graphpod_runtime.front.openai.turn.tool_fields import Tool, ToolUse
from graphpod_runtime.front.openai.turn.turn_form import form_of
from graphpod_runtime.front.requests.errors import ApiError
from graphpod_runtime.front.text.turn.family import Family
from graphpod_runtime.front.text.turn.formats import TOOL_FORMATS, ToolFormat
from graphpod_runtime.front.text.turn.parts import joined
from graphpod_runtime.front.text.turn.turn_parser import TurnForm, TurnParser
from graphpod_runtime.grammar.bounds import GrammarInvalid
from graphpod_runtime.grammar.compile import compiled
from graphpod_runtime.grammar.source import source_of
from graphpod_runtime.grammar.vocabulary import read_vocabulary
from graphpod_runtime.wire.messages import Grammar, GrammarKind

from ..conftest import byte_tokenizer
from .strict_turns import CALL, IN_JSON, IN_PARTS, LLAMA

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
STRICT = ToolUse(tools(strict=True), "auto")
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
TEXT_FORM = TurnForm()
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


def strict_grammar(format: str, use: ToolUse, form: TurnForm = TEXT_FORM) -> Grammar:
    grammar = grammar_of_calls(use, Family.of(format, "None", "", knows_tools=True), form)
    assert grammar is not None
    return grammar


def test_each_family_has_turns_here() -> None:
    assert {*IN_JSON, *IN_PARTS} == {*ToolParser} - {"Auto", "None"}


@pytest.mark.parametrize(("format", "turn"), [(format, turn) for format, turns in IN_JSON.items() for turn in turns])
def test_strict_calls_of_each_family_fit_their_schemas(vocabulary: LLTokenizer, format: str, turn: str) -> None:
    grammar = strict_grammar(format, STRICT)
    for arguments, right in (
        (PARIS, True),
        ('{"city": "x", "unit": "f"}', True),
        ('{"city": 5}', False),
        ("{}", False),
    ):
        assert fits(vocabulary, grammar, turn.replace("ARGUMENTS", arguments)) is right, arguments
    assert not fits(vocabulary, grammar, turn.replace("get_weather", "other").replace("ARGUMENTS", PARIS))


@pytest.mark.parametrize(
    ("format", "turn", "right"), [(format, *one) for format, turns in IN_PARTS.items() for one in turns]
)
def test_strict_arguments_that_stand_one_by_one_fit_their_schemas(
    vocabulary: LLTokenizer, format: str, turn: str, right: bool
) -> None:
    assert fits(vocabulary, strict_grammar(format, STRICT), turn) is right


@pytest.mark.parametrize("format", [*IN_JSON, *IN_PARTS])
def test_text_without_a_call_stays_free(vocabulary: LLTokenizer, format: str) -> None:
    text = "It is 20 °C in Paris {now} [1]; a < b.\n"
    said = f"<|channel|>final<|message|>{text}" if format == "Harmony" else text
    assert fits(vocabulary, strict_grammar(format, STRICT), said)


@pytest.mark.parametrize(("format", "turn"), [("Llama3Json", LLAMA), ("Hermes", f"<tool_call>\n{CALL}\n</tool_call>")])
def test_without_parallel_calls_a_strict_turn_has_one(vocabulary: LLTokenizer, format: str, turn: str) -> None:
    turn = turn.replace("ARGUMENTS", PARIS)
    grammar = strict_grammar(format, replace(STRICT, parallel=False))
    assert fits(vocabulary, grammar, turn)
    assert not fits(vocabulary, grammar, f"{turn}; {turn}")


def test_a_strict_call_is_held_within_reasoning_too(vocabulary: LLTokenizer) -> None:
    call = f"<tool_call>\n{CALL}\n</tool_call>"
    for end, before in (("<think>\n", ""), ("", "<think>")):
        form = form_of(THINKS, STRICT, end)
        grammar = grammar_of_calls(STRICT, THINKS, form)
        assert grammar is not None
        for arguments, right in ((PARIS, True), ("{}", False)):
            for between in ("hm", "hm</think>\n\n"):
                assert fits(vocabulary, grammar, before + between + call.replace("ARGUMENTS", arguments)) is right


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("format", [format for format in (*IN_JSON, *IN_PARTS) if format != "Harmony"])
def test_a_turn_with_structured_output_is_the_answer_or_calls(
    vocabulary: LLTokenizer, format: str, strict: bool
) -> None:
    asked = Grammar("json_schema", '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}')
    family = Family.of(format, "None", "", knows_tools=True)
    grammar = answer_or_calls(asked, ToolUse(tools(strict=strict), "auto"), family, TurnForm())
    assert fits(vocabulary, grammar, '{"n": 5}')
    assert not fits(vocabulary, grammar, '{"n": "x"}')
    assert not fits(vocabulary, grammar, "Text.")
    if format in IN_JSON:
        turn = next(turn for turn in IN_JSON[format][::-1] if not turn.startswith("I look"))
        turn = turn.replace(" Done.", "")
        assert fits(vocabulary, grammar, turn.replace("ARGUMENTS", PARIS))
        assert fits(vocabulary, grammar, turn.replace("ARGUMENTS", '{"city": 5}')) is not strict


@pytest.mark.parametrize(
    ("format", "parameters", "param", "words"),
    [
        ("Pythonic", {"minProperties": 1}, "", "minProperties of all parameters is not kept"),
        ("Pythonic", {"required": ["a"]}, "", "all names of required"),
        ("Pythonic", {"properties": {"a-b": {}}}, ".properties.a-b", "the name is none"),
        ("Pythonic", {"properties": {"a": {"$ref": "#"}}}, ".properties.a", r"\$ref is kept into"),
        (
            "Glm4",
            {"properties": {"a": {"type": "string", "pattern": "x"}}},
            ".properties.a",
            "pattern of a text",
        ),
        ("Qwen3Coder", {"properties": {"a>": {}}}, ".properties.a>", "the name is none"),
    ],
)
def test_a_schema_that_a_family_cannot_keep_is_refused_by_its_name(
    format: str, parameters: dict[str, Any], param: str, words: str
) -> None:
    tool = Tool.model_validate({"function": {"name": "f", "strict": True, "parameters": parameters}})
    with pytest.raises(ApiError, match=words) as refused:
        strict_grammar(format, ToolUse((tool,), "auto"))
    assert refused.value.param == f"tools[0].function.parameters{param}"


def test_a_tool_whose_name_is_none_in_python_is_refused() -> None:
    tool = Tool.model_validate({"function": {"name": "a/b", "strict": True}})
    with pytest.raises(ApiError, match="no name of Python"):
        strict_grammar("Pythonic", ToolUse((tool,), "auto"))


PARTS = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 0, "maximum": 9},
        "kind": {"type": "string", "enum": ["a", "b b"]},
        "on": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
        "note": {"type": ["string", "null"]},
        "unit": {"$ref": "#/$defs/Unit"},
    },
    "required": ["days", "note"],
    "additionalProperties": False,
    "$defs": WEATHER["$defs"],
}


@pytest.mark.parametrize("form", [*TOOL_FORMATS], ids=lambda form: form.name)
def test_whatever_a_grammar_lets_through_is_read_as_calls_that_fit(tmp_path: Path, form: ToolFormat) -> None:
    byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    letters = read_vocabulary(tmp_path, None, [256])
    tools = [{"name": "f", "parameters": PARTS}, {"name": "g", "parameters": {"properties": {"a": {}, "b": {}}}}]
    use = ToolUse(tuple(Tool.model_validate({"function": tool | {"strict": True}}) for tool in tools), "auto")
    family = Family.of(form.name, "None", "", knows_tools=True)
    matcher = LLMatcher(letters, source_of(strict_grammar(form.name, use), letters), log_level=0)
    schemas = {tool["name"]: tool["parameters"] for tool in tools}
    made = 0
    for seed in range(12):
        parser = TurnParser(form_of(family, use, ""), lambda: "id")
        text, whole = walk(matcher.deep_copy(), letters, form.opens[seed % len(form.opens)], Random(seed))
        turn = joined([*parser.feed(text), *parser.flush()])
        for call in turn.calls if whole else turn.calls[:-1]:
            jsonschema.validate(json.loads(call.arguments), schemas[call.name])
            made += 1
    assert made > 0


def walk(matcher: LLMatcher, letters: LLTokenizer, text: str, random: Random) -> tuple[str, bool]:
    """What a model that knows nothing writes after `text`, marks before letters, and whether it came to its end."""
    said = bytearray(text.encode())
    assert all(map(matcher.consume_token, letters.tokenize_bytes(bytes(said))))
    for _ in range(600):
        if matcher.is_stopped():
            break
        mask = int.from_bytes(matcher.compute_bitmask(), "little")
        allowed = [id for id in range(257) if mask >> id & 1]
        if 256 in allowed and random.random() < 0.5:
            return said.decode(), True
        ids = [id for id in allowed if id != 256]
        marks = [id for id in ids if letters.decode_str([id]) in '"}])>\n,=']
        id = random.choice(marks if marks and random.random() < 0.6 else ids)
        assert matcher.consume_token(id)
        said += letters.decode_bytes([id])
    return said.decode(errors="ignore"), matcher.is_accepting()


def test_128_tools_fit_one_grammar(vocabulary: LLTokenizer) -> None:
    many = tuple(Tool.model_validate({"function": {"name": f"f{at}"}}) for at in range(128))
    grammar = grammar_of_calls(ToolUse(many, "required"), PLAIN, TurnForm())
    assert grammar is not None
    assert fits(vocabulary, grammar, '[{"name": "f127", "parameters": {}}]')


@pytest.mark.parametrize("format", [*IN_JSON, "Pythonic"])
def test_128_strict_tools_fit_one_grammar(vocabulary: LLTokenizer, format: str) -> None:
    many = [{"name": f"f{at}", "strict": True, "parameters": WEATHER} for at in range(128)]
    use = ToolUse(tuple(Tool.model_validate({"function": one}) for one in many), "auto")
    assert not compiled(vocabulary, strict_grammar(format, use)).is_error()


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
