"""docs/reference/http.md: its tables are those of the code, and each field, code and endpoint stands in one."""

import re
from pathlib import Path
from typing import get_args

import pytest

from graphpod_runtime.front.anthropic import request as anthropic
from graphpod_runtime.front.anthropic.routes import ENDPOINTS as OF_ANTHROPIC
from graphpod_runtime.front.openai.api import ENDPOINTS
from graphpod_runtime.front.openai.request import UNUSED, ChatRequest, CompletionRequest
from graphpod_runtime.front.openai.responses.request import ResponsesRequest
from graphpod_runtime.front.openai.unbuilt_fields import INSTEAD, MESSAGE_NOT_BUILT, NOT_BUILT
from graphpod_runtime.front.openapi.route import ENDPOINT
from graphpod_runtime.front.reference import CODES, MARKED, filled, tables
from graphpod_runtime.front.refusals import LINES_A_SECOND
from graphpod_runtime.front.requests.errors import Code
from graphpod_runtime.front.server_info import PATHS

PAGE = (Path(__file__).parents[4] / "docs/reference/http.md").read_text()


def named(table: str) -> set[str]:
    """The first column of a table."""
    return set(re.findall(r"^\| `([^`]+)` \|", tables()[table], re.MULTILINE))


def test_the_page_holds_the_tables_as_they_are_now() -> None:
    assert filled(PAGE) == PAGE, "make crd writes them again"
    assert {name for _, name, _ in MARKED.findall(PAGE)} == set(tables())


@pytest.mark.parametrize(("model", "own"), [(ChatRequest, "chat"), (CompletionRequest, "completions")])
def test_every_field_of_a_request_stands_in_one_table(model: type[ChatRequest | CompletionRequest], own: str) -> None:
    accepted, unused = named("shared") | named(own), named("no-effect")
    assert {field for field in accepted | unused if "." not in field} == set(model.model_fields)
    refused = named("not-built") - {f"messages[].{name}" for name in MESSAGE_NOT_BUILT}
    assert (unused, accepted & unused) == (set(UNUSED), set())
    assert refused == set(ChatRequest.not_built) | set(CompletionRequest.not_built)
    assert set(model.not_built).isdisjoint(model.model_fields)
    assert INSTEAD.keys() <= NOT_BUILT.keys()


def test_every_field_of_a_response_stands_in_one_table() -> None:
    own, both = named("responses"), named("shared") | named("no-effect")
    assert {field for field in own | both if "." not in field} == set(ResponsesRequest.model_fields)
    assert own & both == {"model"}
    assert set(ResponsesRequest.not_built).isdisjoint(ResponsesRequest.model_fields)
    refused = named("responses-not-built") | named("not-built")
    assert set(ResponsesRequest.not_built) <= refused


def test_every_field_of_a_message_stands_in_one_table() -> None:
    fields, own = set(anthropic.MessagesRequest.model_fields), named("messages")
    refused = named("messages-not-built") | named("not-built")
    shared = (named("shared") | {"stream"}) - set(anthropic.NOT_HERE)
    unused = named("no-effect")
    assert {field for field in own | shared | unused if "." not in field} == fields - set(anthropic.NOT_HERE)
    assert set(anthropic.NOT_HERE) <= refused
    assert set(anthropic.NOT_BUILT).isdisjoint(fields)
    assert set(anthropic.NOT_BUILT) <= refused


def test_fields_of_objects_in_lists_are_named_as_in_errors() -> None:
    inner = {"messages[].role", "messages[].content[].text", "messages[].tool_calls[].function.arguments"}
    assert inner <= named("chat")


def test_every_field_has_a_meaning() -> None:
    rows = [
        line
        for name in ("shared", "chat", "completions", "responses", "messages", "no-effect", "tokenize", "detokenize")
        for line in tables()[name].splitlines()
    ]
    assert len(rows) > 40
    assert [row for row in rows if re.search(r"\|\s+\|$", row)] == []


def test_every_code_and_endpoint_stands_in_the_page() -> None:
    assert set(CODES) == set(get_args(Code))
    assert set(re.findall(r"^\| `((?:GET|POST|DELETE) [^`]+)` \|", PAGE, re.MULTILINE)) == {
        *ENDPOINTS,
        ENDPOINT,
        *OF_ANTHROPIC,
        *(f"GET {path}" for path in PATHS),
    }
    assert f"at most {LINES_A_SECOND} a second" in PAGE
