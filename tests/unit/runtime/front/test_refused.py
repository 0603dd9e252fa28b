"""Requests that are refused: status, code and field of each, and words that say what to send instead."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import openai
import pytest
from pydantic import BaseModel, ValidationError
from starlette.routing import Route

from graphpod_policy.http_limits import BODY_BYTES
from graphpod_runtime.front.anthropic.request import CountRequest, MessagesRequest
from graphpod_runtime.front.openai.api import ENDPOINTS, openai_app
from graphpod_runtime.front.openai.parse import Parser
from graphpod_runtime.front.openai.request import ChatRequest, CompletionRequest
from graphpod_runtime.front.openai.responses.request import ResponsesRequest

from .conftest import Front, write_model
from .test_openai import CHAT, TEXT, error_of, say


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("best_of", 2, "best_of 2 is not built; only 1 is"),
        ("use_beam_search", True, "use_beam_search true is not built; only false is"),
        ("suffix", "x", 'suffix "x" is not built; leave the field out'),
        ("typical_p", 0.9, "typical_p 0.9 is not built; only 1 is"),
        ("functions", [{"name": "f"}], "functions is not built; send tools instead"),
        ("function_call", {"name": "f"}, "function_call is not built; send tool_choice instead"),
        (
            "reasoning_effort",
            "low",
            "reasoning_effort is not supported by this model: its chat template reads no such variable",
        ),
        (
            "thinking_token_budget",
            5,
            "thinking_token_budget is not supported by this model: it does not reason, or spec.engine.reasoningParser "
            "is None; leave the field out",
        ),
        ("store", True, "store true is not built; only false is"),
        ("service_tier", "flex", 'service_tier "flex" is not built; only "auto" or "default" is'),
    ],
)
def test_a_field_that_is_not_built_is_refused_by_name_with_what_is(
    front: Front, field: str, value: Any, message: str
) -> None:
    response = front.post(CHAT, say("x", **{field: value}))
    error = error_of(response)
    assert (response.status_code, error["param"], error["code"]) == (400, field, "unsupported_parameter")
    assert error["message"] == message


@pytest.mark.parametrize("translated", [MessagesRequest, CountRequest, ResponsesRequest])
def test_every_field_of_a_chat_is_one_of_the_apis_over_it_or_refused_by_name(translated: type[BaseModel]) -> None:
    not_built: Any = translated.not_built  # type: ignore[attr-defined]
    unknown = set(ChatRequest.model_fields) - set(translated.model_fields) - set(not_built)
    assert unknown == set()


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens", "/v1/responses"])
@pytest.mark.parametrize(
    ("field", "unused", "used"),
    [
        ("logprobs", False, True),
        ("echo", False, True),
        ("add_special_tokens", False, True),
        ("add_generation_prompt", True, False),
        ("continue_final_message", False, True),
        ("include_reasoning", True, False),
    ],
)
def test_a_field_that_chats_alone_have_is_refused_where_it_would_change_the_answer(
    front: Front, path: str, field: str, unused: bool, used: bool
) -> None:
    asked = {"input": "x"} if path == "/v1/responses" else {"model": "echo", "messages": say("x")["messages"]}
    if path == "/v1/messages":
        asked["max_tokens"] = 5
    assert front.post(path, asked | {field: unused}).status_code == 200
    refused = front.post(path, asked | {field: used})
    error = refused.json()["error"]
    details = error.get("details", error)
    assert (refused.status_code, details["param"]) == (400, field), error


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"model": "echo"}, "missing_required_parameter"),
        (say("x", top_k=2.5), "invalid_type"),
        (say("x", seed="5"), "invalid_type"),
        (say("x", n="1"), "invalid_type"),
        (say("x", temperature=3), "invalid_value"),
        (say("x", stream_options={}), "invalid_value"),
        (say([{"type": "image_url", "image_url": {}}]), "unsupported_parameter"),
        ({"model": "echo", "messages": [{"role": "user"}]}, "missing_required_parameter"),
        (b"{", "invalid_json"),
        (b"[]", "invalid_json"),
    ],
)
def test_the_code_says_what_kind_of_mistake_it_is(front: Front, body: Any, code: str) -> None:
    assert error_of(front.post(CHAT, body))["code"] == code


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("GET", CHAT, "POST"), ("POST", "/v1/models", "GET"), ("PUT", "/v1/models/a", "GET")],
)
def test_another_method_is_answered_with_the_one_to_send(front: Front, method: str, path: str, allowed: str) -> None:
    response = httpx2.request(method, front.http + path)
    error = error_of(response)
    assert (response.status_code, response.headers["allow"], error["code"]) == (405, allowed, "method_not_supported")
    assert error["message"] == f"{method} {path} is not supported; send {allowed} instead."


def test_the_endpoints_that_a_404_names_are_those_that_are_served(tmp_path: Path) -> None:
    model = SimpleNamespace(path=str(write_model(tmp_path / "model")))
    service: Any = SimpleNamespace(status=SimpleNamespace(config=SimpleNamespace(model=model)))
    served = {
        f"{method} {route.path.replace(':path', '')}"
        for route in openai_app(service, Parser()).routes
        if isinstance(route, Route)
        for method in route.methods or ()
    }
    assert served == set(ENDPOINTS)


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_slash_at_the_end_of_a_path_changes_nothing(front: Front, path: str) -> None:
    """A redirect would name the address of this server, not that of a gateway in front of it."""
    body = say("x") if path == CHAT else {"model": "echo", "prompt": "x"}
    assert front.post(path + "/", body).status_code == 200
    models = httpx2.get(front.http + "/v1/models/")
    assert (models.status_code, models.json()["object"]) == (200, "list")


def test_a_prompt_longer_than_the_model_is_refused_with_both_numbers(front: Front) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        front.client().chat.completions.create(**say("x" * 200_000), max_tokens=5)
    error = caught.value.body
    assert isinstance(error, dict)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
    for number in ("200000 tokens", "200005 tokens", "5 in the completion", "shorten the messages by 1"):
        assert number in error["message"]


def test_a_text_that_was_not_counted_in_full_is_refused_with_what_is_known(own_front: Callable[..., Front]) -> None:
    front = own_front(max_model_len=2048)
    for size, known in ((20_000, "the first 4350 alone have 4350 tokens"), (90_000, "more than 32 for each token")):
        error = error_of(front.post(CHAT, say("x" * size)))
        assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
        for words in ("maximum context length is 2048 tokens", f"{size} characters", known, "Shorten the messages."):
            assert words in error["message"]


def test_an_answer_longer_than_the_model_blames_its_own_field(front: Front) -> None:
    error = error_of(front.post(CHAT, say("hi", max_tokens=10_000_000)))
    assert (error["code"], error["param"]) == ("context_length_exceeded", "max_tokens")
    assert "ask for at most 199998 tokens, or leave max_tokens out" in error["message"]


def test_a_refusal_repeats_no_more_than_the_beginning_of_what_was_sent(front: Front) -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": "x" * 5000}}] * 50
    bodies: list[dict[str, Any]] = [
        say("x", tools=tools),
        say("x", reasoning_effort="z" * 100_000),
        say("x", n=10**4000),
        say("x", model="m" * 100_000),
        say([{"type": "k" * 100_000}]),
    ]
    for body in bodies:
        response = front.post(CHAT, body)
        assert (response.status_code in (400, 404), len(response.content) < 500) == (True, True), response.text[:900]


def test_a_body_beyond_the_limit_is_refused_whether_it_says_its_length_or_not(front: Front) -> None:
    body = json.dumps(say("x" * BODY_BYTES.default)).encode()
    declared = front.post(CHAT, body)
    assert (declared.status_code, error_of(declared)["code"]) == (413, "request_too_large")
    pieces = (body[at : at + 65536] for at in range(0, len(body), 65536))
    chunked = httpx2.post(front.http + CHAT, content=pieces, headers={"content-type": "application/json"})
    assert chunked.status_code == 413
    assert f"larger than {BODY_BYTES.default} bytes" in error_of(chunked)["message"]
    assert front.post(CHAT, say("x")).status_code == 200


def test_a_list_of_wrong_items_gives_one_error(front: Front) -> None:
    with pytest.raises(ValidationError) as caught:
        CompletionRequest.model_validate({"model": "echo", "prompt": [1] * 1000 + [None] * 1000})
    assert caught.value.error_count() <= 4  # one for each form that a prompt can have


def test_a_body_of_another_type_is_told_the_type(front: Front) -> None:
    response = httpx2.post(front.http + CHAT, content=json.dumps(say("x")), headers={"content-type": "text/plain"})
    assert response.status_code == 400
    assert "content-type application/json" in error_of(response)["message"]


def test_a_compressed_body_is_told_so(front: Front) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    response = httpx2.post(front.http + CHAT, content=gzip.compress(json.dumps(say("x")).encode()), headers=headers)
    assert response.status_code == 415
    assert "content-encoding gzip is not supported" in error_of(response)["message"]


def test_a_part_that_is_no_text_is_refused(front: Front) -> None:
    content = [{"type": "image_url", "image_url": {"url": "data:,"}}]
    response = front.post(CHAT, {"model": "echo", "messages": [{"role": "user", "content": content}]})
    assert response.status_code == 400
    assert error_of(response)["param"] == "messages[0].content[0].type"
    assert "image_url parts are not built; send parts of type text" in error_of(response)["message"]


@pytest.mark.parametrize(("field", "value"), [("cache_salt", ""), ("cache_salt", "x" * 257), ("priority", "high")])
def test_a_salt_or_priority_that_cannot_be_is_refused(front: Front, field: str, value: object) -> None:
    refused = front.post("/v1/completions", {"model": "echo", "prompt": "a", field: value})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, field)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "HALF", "text": "a"}]}]}),
        (CHAT, {"messages": [{"role": "user", "content": "a"}], "logit_bias": {"HALF": 1}}),
        ("/v1/responses", {"input": [{"type": "HALF", "role": "user", "content": "a"}]}),
        ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "HALF", "text": "a"}]}]}),
        ("/v1/messages", {"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "HALF"}]}]}),
    ],
)
def test_half_a_character_where_a_message_names_it_is_shown_as_a_question_mark(
    front: Front, path: str, body: dict[str, Any]
) -> None:
    sent = json.dumps({"model": "echo"} | body).replace("HALF", "\\ud83d")
    response = httpx2.post(front.http + path, content=sent, headers={"content-type": "application/json"})
    assert response.status_code == 400, response.text
    assert "?" in response.json()["error"]["message"]
