"""A request's body, whose client may write anything: an answer, or one of OpenAI's errors, and never the server's."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from peers.fuzz.bodies import VALID
from tests.scribbles import LONGEST_MESSAGE, put, scribbled
from tests.tries import tries

from .conftest import Front
from .test_openai import CHAT, TEXT

VECTORS: dict[str, dict[str, Any]] = {
    "/v1/embeddings": {"input": ["a", "b"], "encoding_format": "float"},
    "/v1/score": {"text_1": "a", "text_2": ["b", "c"]},
    "/v1/rerank": {"query": "a", "documents": ["b", {"text": "c"}], "top_n": 1},
}
UNREAD = "chat_template_kwargs"
"""The template of the tests' model reads none."""
BODIES = {
    path: {"model": "echo", **{name: value for name, value in body.items() if name != UNREAD}}
    for path, body in (VALID | VECTORS).items()
}


def is_answered_or_refused(front: Front, path: str, body: Any) -> None:
    response = front.post(path, json.dumps(body).encode())
    assert response.status_code in (200, 400, 404, 413), (response.status_code, response.text)
    if response.status_code != 200:
        error = response.json()["error"]
        assert len(error["message"]) < LONGEST_MESSAGE
        error["message"].encode()


@pytest.mark.parametrize("path", BODIES)
def test_the_body_that_is_scribbled_in_is_answered(front: Front, path: str) -> None:
    assert front.post(path, BODIES[path]).status_code == 200


@tries(60)
@given(st.sampled_from(sorted(BODIES)), st.data())
def test_any_field_of_any_body_may_hold_anything(front: Front, path: str, data: st.DataObject) -> None:
    is_answered_or_refused(front, path, data.draw(scribbled(BODIES[path])))


FORMAT = ("response_format",)
SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "properties": {"a": {
    "type": ["integer", "null"], "enum": [1, 2], "minimum": 0, "multipleOf": 1, "pattern": "a*", "format": "date"}},
    "required": ["a"], "additionalProperties": False, "$defs": {"b": {"$ref": "#/$defs/b"}}}}}  # fmt: skip


@tries(60)
@given(scribbled(SCHEMA))
@example(put(SCHEMA, ("json_schema", "schema", "properties", "a", "multipleOf"), float("nan")))
@example(put(SCHEMA, ("json_schema", "schema", "properties", "a", "multipleOf"), 1e-300))
@example(put(SCHEMA, ("json_schema", "schema", "properties", "a", "minimum"), 10**400))
@example(put(SCHEMA, ("json_schema", "schema", "properties", "a", "pattern"), "(" * 5000))
@example(put(SCHEMA, ("json_schema", "schema", "$defs", "b"), True))
def test_any_keyword_of_a_schema_may_hold_anything(front: Front, format: Any) -> None:
    is_answered_or_refused(front, TEXT, put(BODIES[TEXT], FORMAT, format))


@pytest.mark.parametrize("field", ["regex", "ebnf", "structural_tag", "guided_grammar", "guided_regex"])
@pytest.mark.parametrize("text", ["", "(" * 5000, "[" * 5000, "a{9999}", "\ud800", "\x00", 'root ::= "a" root', "{}"])
def test_a_text_of_a_grammar_may_be_anything(front: Front, field: str, text: str) -> None:
    body = {"model": "echo", "prompt": "a", "max_tokens": 2, field: text}
    is_answered_or_refused(front, TEXT, body)


CALLS = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]}  # fmt: skip
ARGUMENTS = ("tool_calls", 0, "function", "arguments")


@pytest.mark.parametrize("text", ["[" * 5000, "9" * 5000, "1e999", "NaN", '"\\ud800"', "", "null", "{", '{"a":' * 900])
def test_the_arguments_of_an_earlier_call_may_be_anything(front: Front, text: str) -> None:
    turns = [{"role": "user", "content": "a"}, put(CALLS, ARGUMENTS, text)]
    is_answered_or_refused(front, CHAT, {"model": "echo", "messages": turns, "max_tokens": 2})
