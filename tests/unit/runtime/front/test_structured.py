"""What an answer must be: the fields of OpenAI, vLLM and SGLang, and what is refused before anything runs."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from graphpod_runtime.front.openai.request import ChatRequest
from graphpod_runtime.front.openai.structured.grammar import grammar_of
from graphpod_runtime.front.requests.errors import ApiError
from graphpod_runtime.wire.messages import Grammar

from .conftest import Front
from .test_attacks import Prober, all_at_once, nothing_is_left
from .test_openai import CHAT, TEXT

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TEXT_OF_SCHEMA = json.dumps(SCHEMA)
TAGS = {"triggers": ["<f>"], "structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}]}


SAID = {"model": "echo", "messages": [{"role": "user", "content": "abc"}]}
TYPED = {"model": "echo", "prompt": "abc"}


def format_of(kind: str, **more: Any) -> dict[str, Any]:
    return {"response_format": {"type": kind, **more}}


def asked(**fields: Any) -> tuple[str, Grammar] | None:
    return grammar_of(
        ChatRequest.model_validate({"model": "m", "messages": [{"role": "user", "content": "x"}], **fields})
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        (format_of("text"), None),
        (format_of("json_object"), ("response_format", Grammar("json_object"))),
        (
            format_of("json_schema", json_schema={"name": "x", "schema": SCHEMA, "strict": True}),
            ("response_format", Grammar("json_schema", TEXT_OF_SCHEMA)),
        ),
        (format_of("json_object", schema=SCHEMA), ("response_format", Grammar("json_schema", TEXT_OF_SCHEMA))),
        (format_of("structural_tag", **TAGS), ("response_format", Grammar("structural_tag", json.dumps(TAGS)))),
        (
            {"structured_outputs": {"json": SCHEMA, "whitespace_pattern": " "}},
            ("structured_outputs.json", Grammar("json_schema", TEXT_OF_SCHEMA, " ")),
        ),
        (
            {"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True}},
            ("structured_outputs.json", Grammar("json_schema", TEXT_OF_SCHEMA, "")),
        ),
        (
            {"structured_outputs": {"json": TEXT_OF_SCHEMA, "disable_additional_properties": True}},
            (
                "structured_outputs.json",
                Grammar("json_schema", json.dumps(SCHEMA | {"additionalProperties": False})),
            ),
        ),
        ({"structured_outputs": {"json_object": True}}, ("structured_outputs.json_object", Grammar("json_object"))),
        ({"structured_outputs": {"regex": "a+"}}, ("structured_outputs.regex", Grammar("regex", "a+"))),
        ({"structured_outputs": {"choice": ["a"]}}, ("structured_outputs.choice", Grammar("choice", '["a"]'))),
        ({"structured_outputs": {"grammar": "g"}}, ("structured_outputs.grammar", Grammar("ebnf", "g"))),
        ({"guided_json": TEXT_OF_SCHEMA}, ("guided_json", Grammar("json_schema", TEXT_OF_SCHEMA))),
        ({"guided_json": SCHEMA, "guided_whitespace_pattern": " ?"},
         ("guided_json", Grammar("json_schema", TEXT_OF_SCHEMA, " ?"))),
        ({"guided_regex": "a+"}, ("guided_regex", Grammar("regex", "a+"))),
        ({"guided_choice": ["a", "b"]}, ("guided_choice", Grammar("choice", '["a", "b"]'))),
        ({"guided_grammar": "g"}, ("guided_grammar", Grammar("ebnf", "g"))),
        ({"json_schema": TEXT_OF_SCHEMA}, ("json_schema", Grammar("json_schema", TEXT_OF_SCHEMA))),
        ({"regex": "a"}, ("regex", Grammar("regex", "a"))),
        ({"ebnf": "g"}, ("ebnf", Grammar("ebnf", "g"))),
        ({"structural_tag": "{}"}, ("structural_tag", Grammar("structural_tag", "{}"))),
    ],
)  # fmt: skip
def test_each_field_is_a_grammar(fields: dict[str, Any], expected: tuple[str, Grammar] | None) -> None:
    assert asked(**fields) == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_regex"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs.choice"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"json_object": False}}, "structured_outputs"),
        (format_of("json_schema"), "response_format.json_schema"),
        ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern"),
        ({**format_of("json_object"), "regex": "a"}, "regex"),
    ],
)
def test_two_grammars_and_half_ones_are_refused_by_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        asked(**fields)
    assert (refused.value.status, refused.value.param) == (400, param)


@pytest.mark.parametrize("text", ["[" * 100_000, "{", " " * 4_500_000 + "{}"])
def test_a_schema_that_cannot_be_read_is_a_400_where_it_would_be_closed(text: str) -> None:
    with pytest.raises(ApiError) as refused:
        asked(structured_outputs={"json": text, "disable_additional_properties": True})
    assert (refused.value.status, refused.value.code) == (400, "invalid_grammar")
    assert refused.value.param == "structured_outputs.json"


@pytest.fixture(scope="module")
def wrong() -> list[tuple[dict[str, Any], str, str]]:
    """Fields, the code and the field of the answer."""
    return [
        ({"guided_json": {"not": {}}}, "invalid_grammar", "guided_json"),
        ({"guided_json": False}, "invalid_grammar", "guided_json"),
        ({"guided_json": "{"}, "invalid_grammar", "guided_json"),
        ({"guided_choice": []}, "invalid_value", "guided_choice"),
        ({"guided_choice": [1]}, "invalid_type", "guided_choice[0]"),
        ({"guided_choice": ["\ud800"]}, "invalid_value", "guided_choice[0]"),
        ({"guided_json": {"const": "\ud800"}}, "invalid_grammar", "guided_json"),
        ({"regex": "("}, "invalid_grammar", "regex"),
        ({"ebnf": 'start: start'}, "invalid_grammar", "ebnf"),
        (format_of("xml"), "invalid_value", "response_format.type"),
        (format_of("json_schema", json_schema={"name": "x"}), "missing_required_parameter",
         "response_format.json_schema.schema"),
        (format_of("structural_tag"), "invalid_grammar", "response_format"),
        ({"structured_outputs": {"json": {"x-guidance": {}}}}, "invalid_grammar", "structured_outputs.json"),
    ]  # fmt: skip


@pytest.mark.parametrize(("path", "body"), [(CHAT, SAID), (TEXT, TYPED)])
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_kept_is_a_400_before_any_event(
    front: Front, wrong: list[tuple[dict[str, Any], str, str]], path: str, body: dict[str, Any], stream: bool
) -> None:
    for fields, code, param in wrong:
        answer = front.post(path, {**body, **fields, "stream": stream})
        assert answer.status_code == 400, (fields, answer.text)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (400, code, param), (fields, error)
    nothing_is_left(front)


def schemas() -> Iterator[dict[str, Any]]:
    """Fifty, all different, each near a bound."""
    for number in range(50):
        yield {"type": "object", "properties": {f"p{number}_{at}": {"type": "integer"} for at in range(400)}}


def test_fifty_large_schemas_at_once_hold_up_no_probe_and_no_stream(front: Front) -> None:
    bodies = [json.dumps({**TYPED, "max_tokens": 1, "guided_json": schema}).encode() for schema in schemas()]
    with Prober(front) as prober:
        answers = all_at_once(front, TEXT, bodies)
        assert front.post(TEXT, TYPED).status_code == 200
    assert {answer.status_code for answer in answers} <= {200, 503}, answers[0].text
    assert (set(prober.answers), prober.answers[200] > 0) == ({200}, True)
    nothing_is_left(front)
