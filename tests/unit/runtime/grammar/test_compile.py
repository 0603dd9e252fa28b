"""A grammar takes what it says and nothing else, or is refused with the reason, at a bounded cost."""

import json
import threading
import traceback
from typing import Any

import pytest
from llguidance import LLTokenizer

from graphpod_runtime.grammar.bounds import (
    MAX_CHARACTERS,
    MAX_OPTIONAL,
    MAX_OPTIONS,
    MAX_PROPERTIES,
    MAX_REFERENCES,
    MAX_RULES,
    GrammarInvalid,
)
from graphpod_runtime.grammar.compile import compiled
from graphpod_runtime.grammar.compiler import Compiler
from graphpod_runtime.grammar.matcher import AnswerGrammar
from graphpod_runtime.wire.messages import Grammar

CAT = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}
NESTED = {"$ref": "#/$defs/n", "$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}}
TWICE = {
    str(at): {"type": "object", "properties": {name: {"$ref": f"#/$defs/{at + 1}"} for name in "xy"}}
    for at in range(50)
}
"""Without references it would have 2**50 strings."""
NAMES = [f"property{at}" for at in range(MAX_PROPERTIES)]
CALL = {
    "triggers": ["<call>"],
    "structures": [{"begin": "<call>", "schema": CAT, "end": "</call>"}],
}


def schema(value: Any, whitespace: str | None = None) -> Grammar:
    return Grammar("json_schema", json.dumps(value), whitespace)


def tag(**format: Any) -> Grammar:
    return Grammar("structural_tag", json.dumps({"format": format}))


CALLED = {"begin": "<call>", "content": {"type": "json_schema", "json_schema": CAT}, "end": "</call>"}

OPEN = {"type": "object", "properties": {"a": {"type": "integer"}}}
WHOLE: list[tuple[Grammar, str, bool]] = [
    (schema(CAT), '{"name":"Tom"}', True),
    (schema(CAT), '{\n  "name": "Tom"\n}', True),
    (schema(CAT), '{   "name":"Tom"}', False),
    (schema(CAT), '{"name":3}', False),
    (schema(CAT), '{"name":"Tom","age":3}', False),
    (schema(CAT, whitespace=""), '{"name":"Tom"}', True),
    (schema(CAT, whitespace=""), '{"name": "Tom"}', False),
    (schema(CAT, whitespace=" {0,9}"), '{    "name":"Tom"}', True),
    (schema(True), "[1,null]", True),
    (schema(NESTED), "[[],[[]]]", True),
    (Grammar("json_object"), '{"a":[1,{"b":null}]}', True),
    (Grammar("json_object"), "[1]", False),
    (Grammar("regex", "[0-9]{3}-[a-z]+"), "123-ab", True),
    (Grammar("regex", "[0-9]{3}-[a-z]+"), "12-ab", False),
    (Grammar("regex", "(a|a)*b"), "aaaab", True),
    (Grammar("choice", json.dumps(["foo", "foobar", "bär"])), "foo", True),
    (Grammar("choice", json.dumps(["foo", "foobar", "bär"])), "bär", True),
    (Grammar("choice", json.dumps(["foo", "foobar"])), "foob", False),
    (Grammar("choice", json.dumps(["a\x7fb"])), "a\x7fb", True),
    (Grammar("choice", json.dumps(['"', "\\", "\n"])), "\\", True),
    (Grammar("ebnf", 'root ::= "a" [0-9]+ | "b"'), "a12", True),
    (Grammar("ebnf", 'root ::= "a" [0-9]+ | "b"'), "ab", False),
    (Grammar("ebnf", 'start: "a" DIGITS\nDIGITS: /[0-9]+/'), "a1", True),
    (Grammar("ebnf", '%llguidance {}\nstart: "a"'), "a", True),
    (Grammar("ebnf", 'root ::= root "a" | "a"'), "aaa", True),
    (Grammar("structural_tag", json.dumps(CALL)), 'no call, <b>', True),
    (Grammar("structural_tag", json.dumps(CALL)), 'so <call>{"name":"x"}</call> and <call>{"name":"y"}</call>.', True),
    (Grammar("structural_tag", json.dumps(CALL)), "so <call>{}</call>", False),
    (tag(type="tag", **CALLED), '<call>{"name":"x"}</call>', True),
    (tag(type="tag", **CALLED), 'first <call>{"name":"x"}</call>', False),
    (tag(type="tags_with_separator", tags=[CALLED], separator="\n"), '<call>{"name":"x"}</call>', True),
    (
        tag(type="tags_with_separator", tags=[CALLED], separator="\n", at_least_one=True),
        '<call>{"name":"x"}</call>\n<call>{"name":"y"}</call>',
        True,
    ),
    (tag(type="tags_with_separator", tags=[CALLED], separator="\n", at_least_one=True), "", False),
    (tag(type="tags_with_separator", tags=[CALLED], separator="\n"), "", True),
    (tag(type="triggered_tags", triggers=["<call>"], tags=[CALLED], at_least_one=True), "none", False),
    (
        tag(type="triggered_tags", triggers=["<call>"], tags=[CALLED], stop_after_first=True),
        'a <call>{"name":"x"}</call> b',
        False,
    ),
    (
        tag(type="sequence", elements=[{"type": "any_text"}, {"type": "const_string", "value": "</think>"},
                                       {"type": "json_schema", "json_schema": CAT}]),
        'so 1 < 2</think>{"name":"x"}',
        True,
    ),
    (
        tag(type="or", elements=[{"type": "regex", "pattern": "[0-9]+/"}, {"type": "const_string", "value": "none"}]),
        "12/",
        True,
    ),
    (tag(type="grammar", grammar='root ::= "a"+'), "aaa", True),
    (schema(OPEN), '{"a":1,"b":"x"}', True),
    (schema(OPEN), r'{"a":1,"\u0061":"x"}', False),
    (tag(type="json_schema", json_schema=OPEN), r'{"a":1,"\u0061":"x"}', False),
    (schema({}), r'"\n\"\\ é😀"', True),
    (schema({"enum": ["\x01"]}), r'"\u0001"', True),
    (schema({"minProperties": 2, "required": ["a"], "properties": {"a": {}}}), '{"a":1,"a":2}', False),
    (schema({"minProperties": 2, "required": ["a"], "properties": {"a": {}}}), '{"a":1,"b":2}', True),
    (schema({"multipleOf": 0.1}), "0.3", True),
    (schema({"multipleOf": 0.1}), "0.35", False),
]  # fmt: skip


@pytest.mark.parametrize(("grammar", "text", "fits"), WHOLE)
def test_an_answer_fits_or_does_not(vocabulary: LLTokenizer, grammar: Grammar, text: str, fits: bool) -> None:
    answer = AnswerGrammar(compiled(vocabulary, grammar))
    took = all(answer.matcher.consume_token(token) for token in vocabulary.tokenize_str(text))
    assert (took and answer.matcher.is_accepting()) is fits


def test_an_answer_that_nothing_can_follow_is_complete(vocabulary: LLTokenizer) -> None:
    answer, states = AnswerGrammar(compiled(vocabulary, Grammar("choice", '["ab", "a"]'))), []
    for token in vocabulary.tokenize_str("ab"):
        states.append((answer.complete, answer.problem))
        answer.advance(token)
    assert (states, answer.complete, answer.problem) == ([(False, None)] * 2, True, None)


def test_a_token_that_does_not_fit_is_a_problem_and_no_end(vocabulary: LLTokenizer) -> None:
    answer = AnswerGrammar(compiled(vocabulary, Grammar("choice", '["ab"]')))
    answer.advance(vocabulary.tokenize_str("b")[0])
    assert not answer.complete
    assert answer.problem is not None
    assert "satisfy the grammar" in answer.problem


DEEP: Any = {"type": "string"}
for _ in range(200):
    DEEP = {"anyOf": [DEEP, {"type": "null"}]}


def rules(names: str, count: int) -> str:
    """Each refers to the next."""
    chain = "".join(f'{names}{at}: "a" {names}{at + 1}\n' for at in range(count - 2))
    return f'start: {names}0\n{chain}{names}{count - 2}: "b"'


def references(count: int) -> dict[str, Any]:
    """Definitions, of which each refers to the next."""
    chain = {str(at): {"$ref": f"#/$defs/{at + 1}"} for at in range(count - 1)}
    return {"$ref": "#/$defs/0", "$defs": chain | {str(count - 1): {"type": "string"}}}


def items(count: int) -> dict[str, Any]:
    chain = {str(at): {"type": "array", "items": {"$ref": f"#/$defs/{at + 1}"}} for at in range(count - 1)}
    return {"$ref": "#/$defs/0", "$defs": chain | {str(count - 1): {"type": "string"}}}


REFUSED: list[tuple[Grammar, str]] = [
    (schema(False), "schema is false"),
    (schema([]), "is an object, true or false"),
    (schema({"enum": []}), "anyOf is empty"),
    (schema({"not": {}}), '"not"'),
    (schema({"type": "array", "uniqueItems": True}), '"uniqueItems"'),
    (schema({"type": "strin"}), "Invalid type: strin"),
    (schema({"$ref": "#"}), "no answer fits"),
    (schema({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}), "no answer fits"),
    (schema({"$ref": "http://example.com/schema"}), "Default retriever does not fetch"),
    (schema({"$ref": "file:///etc/passwd"}), "Default retriever does not fetch"),
    (schema({"x-guidance": {"lenient": True}, "not": {}}), "'x-guidance'"),
    (schema(DEEP), "more than 64 levels"),
    (schema({"enum": [str(at) for at in range(MAX_OPTIONS + 1)]}), f"at most {MAX_OPTIONS}"),
    (schema({"properties": {str(at): {} for at in range(MAX_PROPERTIES + 1)}}), f"at most {MAX_PROPERTIES}"),
    (
        schema({"properties": {str(at): {} for at in range(MAX_OPTIONAL + 1)}}),
        "481 properties that are not in 'required'",
    ),
    (schema({"multipleOf": 1e9}), "multipleOf"),
    (schema({"type": "string", "pattern": "(?=a)b"}), "look-around"),
    (schema({"description": "x" * MAX_CHARACTERS}), f"at most {MAX_CHARACTERS}"),
    (schema({}, whitespace="x" * 300), "at most 256"),
    (schema({}, whitespace="("), "regex parse error"),
    (Grammar("json_schema", "{"), "not JSON"),
    (Grammar("json_schema", "[" * 100_000), "nested too deeply"),
    (Grammar("regex", "(a"), "regex parse error"),
    (Grammar("regex", r"(a)\1"), "backreferences"),
    (Grammar("json_schema", '{"oneOf": [{"type": "integer"}, {"type": "number"}]}'), "not supported. Use anyOf."),
    (Grammar("regex", "(" * 50_000 + "a" + ")" * 50_000), "invalid regex"),
    (Grammar("choice", "[]"), "one or more"),
    (Grammar("choice", '[""]'), "but the empty one"),
    (Grammar("ebnf", "root ::="), "but the empty one"),
    (Grammar("ebnf", "start:"), "but the empty one"),
    (Grammar("ebnf", "start: b\nb:"), "but the empty one"),
    (Grammar("regex", "()"), "but the empty one"),
    (Grammar("choice", "[1]"), "list of strings"),
    (Grammar("choice", '["\\ud800"]'), "half a surrogate"),
    (Grammar("choice", json.dumps([str(at) for at in range(MAX_OPTIONS + 1)])), f"at most {MAX_OPTIONS}"),
    (Grammar("ebnf", 'root ::= "a'), "Unexpected end"),
    (Grammar("ebnf", "root ::= missing"), "'missing' not found"),
    (Grammar("ebnf", "root ::= " + "(" * 5000 + '"a"' + ")" * 5000), "nested too deeply"),
    (Grammar("ebnf", "start: ((("), "Expected token"),
    (Grammar("ebnf", "start: <|no_such_token|>"), "unknown special token"),
    (Grammar("ebnf", "start: a\na: b\nb: a"), "no answer fits"),
    (Grammar("structural_tag", "[]"), "is an object"),
    (Grammar("structural_tag", "{}"), "structures of a structural tag"),
    (tag(type="nonsense"), "'nonsense'"),
    (tag(type="const_string", value="x" * 5000), "5000 characters; at most 4096"),
    (Grammar("ebnf", 'start: %json {"type": "object"}'), "cannot have %json; use json_schema or a structural tag"),
    (Grammar("ebnf", 'start: %lark { start: "a" }'), "cannot have %lark"),
    (Grammar("ebnf", 'start: T\nT: %regex {"substring_chars": "abc"}'), "cannot have %regex"),
    (Grammar("ebnf", '%llguidance {"no_forcing": true}\nstart: "a"'), "cannot have %llguidance"),
    (tag(type="grammar", grammar="start: %json {}"), "cannot have %json"),
    (schema(references(3000)), f"3000 definitions or more; at most {MAX_REFERENCES}"),
    (schema(items(3000)), f"3000 definitions or more; at most {MAX_REFERENCES}"),
    (schema({"definitions": {str(at): {} for at in range(501)}}), "501 definitions"),
    (Grammar("ebnf", rules("r", 3000)), f"3000 rules and terminals; at most {MAX_RULES}"),
    (Grammar("ebnf", rules("T", 20_000)), f"20000 rules and terminals; at most {MAX_RULES}"),
    (Grammar("ebnf", rules("r", 3000).replace(":", " ::=").replace("start", "root")), "3000 rules and terminals"),
    (tag(type="json_schema", json_schema=references(3000)), "3000 definitions"),
    (tag(type="sequence", elements=[{"type": "grammar", "grammar": rules("r", 300)}] * 2), "600 rules and terminals"),
    (tag(type="triggered_tags", triggers=["<x>"], tags=[CALLED]), "none of the triggers"),
    (tag(type="sequence", elements=[{"type": "any_text"}] * 600), "1 to 512"),
    (schema({"type": "object", "minProperties": 2}), "could repeat one name"),
    (schema({"minProperties": 3, "required": ["a"], "properties": {"a": {}}}), "above the 1 names in 'required'"),
]


@pytest.mark.parametrize(("grammar", "reason"), REFUSED)
def test_a_grammar_that_cannot_be_kept_is_refused_with_the_reason(
    vocabulary: LLTokenizer, grammar: Grammar, reason: str
) -> None:
    with pytest.raises(GrammarInvalid) as refused:
        compiled(vocabulary, grammar)
    assert reason in str(refused.value)
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar("regex", "(a|a)*$"),
        Grammar("regex", "a{1,100000}"),
        Grammar("regex", "((a{0,100}){0,100}){0,100}"),
        schema({"type": "string", "maxLength": 10**6}),
        schema({"type": "array", "items": {"type": "string"}, "minItems": 10**9}),
        schema({"enum": [f"word {at}" for at in range(MAX_OPTIONS)]}),
        schema({"properties": {name: {} for name in NAMES}, "required": NAMES[MAX_OPTIONAL:]}),
        schema({"$ref": "#/$defs/0", "$defs": TWICE | {"50": {"type": "string"}}}),
        schema(references(MAX_REFERENCES)),
        schema(items(MAX_REFERENCES)),
        tag(type="json_schema", json_schema=items(MAX_REFERENCES)),
        Grammar("ebnf", rules("r", MAX_RULES)),
        Grammar("ebnf", rules("T", MAX_RULES)),
        Grammar("ebnf", "start: s\ns: s s | \"a\" | "),
    ],
)  # fmt: skip
def test_what_looks_costly_and_is_not_is_compiled(vocabulary: LLTokenizer, grammar: Grammar) -> None:
    assert compiled(vocabulary, grammar).compute_bitmask()


def test_a_long_text_is_refused_and_not_kept_and_others_compile_on_a_large_stack(vocabulary: LLTokenizer) -> None:
    before, compiler = threading.stack_size(), Compiler(lambda: vocabulary)
    with pytest.raises(GrammarInvalid, match="at most"):
        compiler.start(Grammar("regex", "a" * (MAX_CHARACTERS + 1))).result(0).refuse()
    assert not compiler._kept
    compiling = compiler.start(Grammar("regex", "a"))
    assert compiling.result(60).copy().compute_bitmask()
    assert compiler.start(Grammar("regex", "a")) is compiling
    assert threading.stack_size() == before


def test_a_refused_grammar_is_an_exception_of_its_own_for_each_request(vocabulary: LLTokenizer) -> None:
    """One that is kept would hold the frames of every request that has raised it."""
    compiler, raised = Compiler(lambda: vocabulary), list[GrammarInvalid]()
    for _ in range(3):
        with pytest.raises(GrammarInvalid, match="repetition") as caught:
            compiler.start(Grammar("regex", "*")).result(60).copy()
        raised.append(caught.value)
    assert len({id(error) for error in raised}) == 3
    assert len({str(error) for error in raised}) == 1
    assert {len(traceback.extract_tb(error.__traceback__)) for error in raised} == {2}
    assert not any(error.__context__ or error.__cause__ for error in raised)
    assert compiler._kept[next(iter(compiler._kept))].exception() is None


def test_what_is_no_fault_of_the_grammar_is_tried_again(vocabulary: LLTokenizer) -> None:
    found: list[Exception | LLTokenizer] = [MemoryError(), vocabulary]

    def read() -> LLTokenizer:
        if isinstance(one := found.pop(0), Exception):
            raise one
        return one

    compiler, grammar = Compiler(read), Grammar("regex", "a")
    with pytest.raises(MemoryError):
        compiler.start(grammar).result(60)
    assert compiler.start(grammar).result(60).copy().compute_bitmask()


@pytest.mark.parametrize("more", [{}, {"additionalProperties": False}])
def test_an_object_with_the_most_optional_properties_is_written_to_its_end(
    vocabulary: LLTokenizer, more: dict[str, Any]
) -> None:
    properties = {name: {"type": "string"} for name in NAMES[:MAX_OPTIONAL]}
    answer = AnswerGrammar(compiled(vocabulary, schema({"type": "object", "properties": properties, **more})))
    for token in vocabulary.tokenize_str('{"property1": "a", "property240": "b", "property479": "c"}'):
        answer.matcher.compute_bitmask()
        assert answer.problem is None
        answer.advance(token)
    assert answer.complete
