"""Requests that are refused: status, code and field of each, and words that say what to send instead."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

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
from graphpod_runtime.front.requests.errors import Code

from .conftest import Front, write_model
from .test_openai import CHAT, NESTED, TEXT, error_of, say

HALF = "holds half a surrogate pair; send whole characters"


def schema(properties: Any) -> Any:
    """An answer's format."""
    return {"type": "json_schema", "json_schema": {"name": "a", "schema": {"properties": properties}}}


def called(arguments: str) -> dict[str, Any]:
    """A conversation in which the assistant called a function."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"messages": [{"role": "assistant", "content": None, "tool_calls": [call]}, *say("x")["messages"]]}


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


@pytest.mark.parametrize(
    ("path", "body", "status", "param", "words"),
    [
        (CHAT, b'{"model": "echo", ', 400, None, "not JSON"),
        (CHAT, [1], 400, None, "JSON object"),
        (CHAT, {"model": "echo"}, 400, "messages", "required"),
        (CHAT, {"model": "echo", "messages": []}, 400, "messages", "at least 1"),
        (CHAT, {"model": "echo", "messages": [{"role": "robot", "content": "x"}]}, 400, "messages[0].role", "user"),
        (CHAT, say("x", temperature=3), 400, "temperature", "less than or equal to 2"),
        (CHAT, say("x", top_k=-2), 400, "top_k", "greater than or equal to -1"),
        (CHAT, say("x", top_k=2.5), 400, "top_k", "valid integer"),
        (CHAT, say("x", min_p=1.5), 400, "min_p", "less than or equal to 1"),
        (TEXT, {"model": "echo", "prompt": "x", "min_p": -0.1}, 400, "min_p", "greater than or equal to 0"),
        (CHAT, say("x", temperature=float("nan")), 400, "temperature", "finite number"),
        (CHAT, say("x", top_p=float("-inf")), 400, "top_p", "finite number"),
        (CHAT, say("x", temperature=True), 400, "temperature", "valid number"),
        (CHAT, say("x", max_tokens=True), 400, "max_tokens", "valid integer"),
        (CHAT, say("x", seed="5"), 400, "seed", "valid integer"),
        (CHAT, say("x", stream="yes"), 400, "stream", "valid boolean"),
        (CHAT, say("x", stop=["a" * 100_000] * 16), 400, "stop[0]", "at most 1024 characters"),
        (CHAT, say("x", stop=["a"] * 17), 400, "stop", "at most 16 items"),
        (
            CHAT,
            {"model": "echo", "messages": [{"role": "user", "content": "x"}] * 8193},
            400,
            "messages",
            "at most 8192",
        ),
        (CHAT, {"model": "echo", "messages": [{"role": "user"}]}, 400, "messages[0].content", "missing"),
        (CHAT, {"model": "echo", "messages": [{"role": "tool"}]}, 400, "messages[0].content", "missing"),
        (
            CHAT,
            say("x", chat_template_kwargs={"a": 1}),
            400,
            "chat_template_kwargs",
            "does not read 'a'; it reads: none",
        ),
        (CHAT, say("x", chat_template_kwargs={"a": "x" * 20_000}), 400, "chat_template_kwargs", "more than 16384"),
        (CHAT, say("x", chat_template_kwargs={"a": NESTED}), 400, "chat_template_kwargs", "16 levels"),
        (CHAT, say("x", chat_template_kwargs={"a": float("nan")}), 400, "chat_template_kwargs", "not JSON"),
        (CHAT, say("x", logit_bias=NESTED), 400, "logit_bias", "valid dictionary"),
        (CHAT, say("x", logit_bias={"5": NESTED}), 400, "logit_bias.5", "valid number"),
        (CHAT, say("x", logit_bias={"5": float("nan")}), 400, "logit_bias.5", "finite number"),
        (CHAT, say("x", logit_bias={"5": 101}), 400, "logit_bias.5", "less than or equal to 100"),
        (CHAT, say("x", logit_bias={"5": True}), 400, "logit_bias.5", "valid number"),
        (CHAT, say("x", logit_bias={"bad1": 1, "5": 1, "-3": 1}), 400, "logit_bias", "these are none: bad1, -3"),
        (CHAT, say("x", logit_bias={"9" * 5000: 1}), 400, "logit_bias", "999…"),
        (CHAT, say("x", logit_bias={"260": 1}), 400, "logit_bias", "does not have: 260; it has 260, 0 to 259"),
        (CHAT, say("x", logit_bias={str(id): 1 for id in range(1025)}), 400, "logit_bias", "at most 1024"),
        (CHAT, say("x", allowed_token_ids=[]), 400, "allowed_token_ids", "at least 1 item"),
        (CHAT, say("x", allowed_token_ids=[5, 999]), 400, "allowed_token_ids", "does not have: 999"),
        (CHAT, say("x", bad_words=[""]), 400, "bad_words[0]", "at least 1 character"),
        (CHAT, say("x", bad_words=["\ud800"]), 400, "bad_words[0]", HALF),
        (CHAT, say("x", stop=["a", "\udfff"], stream=True), 400, "stop[1]", HALF),
        (CHAT, {"\ud800": 1}, 400, None, f"The name of a field {HALF}"),
        (CHAT, say("x", stream_options={"\ud800": 1}), 400, "stream_options", HALF),
        (
            CHAT,
            {"model": "echo", "messages": [{"role": "user", "content": "x", "\ud800": 1}]},
            400,
            "messages[0]",
            HALF,
        ),
        (CHAT, say("x", response_format=schema({"\ud800": {}})), 400, "response_format", "the schema holds half"),
        (CHAT, say("x", logit_bias={"\ud800": 1}), 400, "logit_bias", "these are none: ?"),
        (CHAT, say([{"type": "\ud800"}]), 400, "messages[0].content[0].type", "? parts are not built"),
        (
            CHAT,
            called('{"a": "\\ud800"}'),
            400,
            "messages[0].tool_calls[0].function.arguments",
            "holds half a surrogate pair; send whole characters",
        ),
        (CHAT, called('{"a": ' + "[" * 20 + "]" * 20 + "}"), 400, "messages[0].tool_calls[0].function.arguments", "16"),
        (CHAT, say("x", bad_words=[" "]), 400, "bad_words[0]", "has no tokens"),
        (CHAT, say("x", bad_words=["a"] * 129), 400, "bad_words", "at most 128"),
        (CHAT, say("x", min_tokens=9, max_tokens=8), 400, "min_tokens", "min_tokens is 9 and the answer may have 8"),
        (CHAT, say("x", presence_penalty=-2.1), 400, "presence_penalty", "greater than or equal to -2"),
        (CHAT, say("x", repetition_penalty=0), 400, "repetition_penalty", "greater than or equal to 0.01"),
        (CHAT, say("x", n=1000), 400, "n", "less than or equal to 128"),
        (CHAT, say("x", n=0), 400, "n", "greater than or equal to 1"),
        (CHAT, say("x", prompt_logprobs=-1), 400, "prompt_logprobs", "greater than or equal to 0"),
        (CHAT, say("x", prompt_logprobs=1, stream=True), 400, "prompt_logprobs", "not part of a stream"),
        (CHAT, say("x", logprob_token_ids=[5]), 400, "logprob_token_ids", "only allowed with logprobs"),
        (CHAT, say("x", logprobs=True, logprob_token_ids=[300]), 400, "logprob_token_ids", "does not have: 300"),
        (CHAT, say("x", truncate_prompt_tokens=2**20), 400, "truncate_prompt_tokens", "context has"),
        (TEXT, {"model": "echo", "prompt": "x", "n": 2, "best_of": 1}, 400, "best_of", "best_of is 1 and n is 2"),
        (TEXT, {"model": "echo", "prompt": "x", "best_of": 2, "stream": True}, 400, "best_of", "in a stream"),
        (TEXT, {"model": "echo", "prompt": "x", "truncate_prompt_tokens": 0}, 400, "prompt", "is empty"),
        (CHAT, say("x", max_tokens=0), 400, "max_tokens", "greater than or equal to 1"),
        (TEXT, {"model": "echo", "prompt": "x", "max_tokens": 0}, 400, "max_tokens", "would be empty; ask for 1"),
        (TEXT, {"model": "echo", "prompt": "x", "max_tokens": -1}, 400, "max_tokens", "greater than or equal to 0"),
        (TEXT, {"model": "echo", "prompt": [1] * 200_000, "max_tokens": 0, "echo": True}, 400, "prompt", "by 1"),
        (CHAT, say("x", n="1"), 400, "n", "valid integer"),
        (CHAT, say("x", n=True), 400, "n", "valid integer"),
        (CHAT, say("x", presence_penalty="0"), 400, "presence_penalty", "valid number"),
        (CHAT, say("x", length_penalty="0"), 400, "length_penalty", 'must be a number, not "0"'),
        (TEXT, {"model": "echo", "prompt": "x", "max_tokens": 10**4300 - 1}, 400, "max_tokens", "less than"),
        (CHAT, say("x", stop_token_ids=[5, 2**70]), 400, "stop_token_ids[1]", "less than 2147483648"),
        (CHAT, say("x", stop_token_ids=[-1]), 400, "stop_token_ids[0]", "greater than or equal to 0"),
        (CHAT, say("x", stop_token_ids=[1] * 17), 400, "stop_token_ids", "at most 16 items"),
        (CHAT, say("x", stop=[""]), 400, "stop[0]", "at least 1 character"),
        (CHAT, say("x", stream_options={"include_usage": True}), 400, "stream_options", "stream is true"),
        (CHAT, say("x", top_logprobs=2), 400, "top_logprobs", "only allowed when logprobs is true"),
        (CHAT, say("x", logprobs=True, top_logprobs=21), 400, "top_logprobs", "less than or equal to 20"),
        (CHAT, say("x", logprobs=1), 400, "logprobs", "boolean"),
        (TEXT, {"model": "echo", "prompt": "x", "logprobs": 21}, 400, "logprobs", "less than or equal to 20"),
        (TEXT, {"model": "echo", "prompt": "x", "logprobs": True}, 400, "logprobs", "valid integer"),
        (TEXT, {"model": "echo", "prompt": "x", "logprobs": -1}, 400, "logprobs", "greater than or equal to 0"),
        (
            CHAT,
            say("x", add_generation_prompt=True, continue_final_message=True),
            400,
            "continue_final_message",
            "both",
        ),
        (CHAT, say("x", add_generation_prompt=0), 400, "add_generation_prompt", "valid boolean"),
        (TEXT, {"model": "echo", "prompt": "x", "max_completion_tokens": 5}, 400, "max_completion_tokens", "not built"),
        ("/tokenize", {}, 400, "prompt", "either prompt or messages"),
        ("/tokenize", say("x", prompt="x"), 400, "prompt", "either prompt or messages"),
        ("/tokenize", say("x", add_special_tokens=True), 400, "add_special_tokens", "for a prompt"),
        ("/tokenize", say("x", tools=[{}]), 400, "tools[0].function", "required"),
        ("/tokenize", {"prompt": "x", "model": "gpt-5"}, 404, "model", "serves 'echo'"),
        ("/tokenize", {"prompt": "x" * 600_000}, 400, "prompt", "600000 characters"),
        ("/tokenize", {"messages": [{"role": "user", "content": "x"}] * 8193}, 400, "messages", "at most 8192"),
        ("/tokenize", say("x", chat_template_kwargs={"a": NESTED}), 400, "chat_template_kwargs", "16 levels"),
        ("/detokenize", {}, 400, "tokens", "required"),
        ("/detokenize", {"tokens": [260]}, 400, "tokens", "token id 260"),
        ("/detokenize", {"tokens": [-1]}, 400, "tokens", "token id -1"),
        ("/detokenize", {"tokens": [2**70]}, 400, "tokens", "token id"),
        ("/detokenize", {"tokens": [1] * 200_001}, 400, "tokens", "at most 200000"),
        ("/detokenize", {"tokens": [1], "skip_special_tokens": True}, 400, "skip_special_tokens", "only false is"),
        (CHAT, say("x", model="gpt-5"), 404, "model", "'gpt-5' does not exist here; this service serves 'echo'"),
        (TEXT, {"model": "echo", "prompt": ""}, 400, "prompt", "empty"),
        (TEXT, {"model": "echo", "prompt": []}, 400, "prompt", "empty list"),
        (TEXT, {"model": "echo", "prompt": [999]}, 400, "prompt", "0 to 259"),
        (TEXT, {"model": "echo", "prompt": [260]}, 400, "prompt", "token id 260 at position 0"),
        (TEXT, {"model": "echo", "prompt": [1, -1]}, 400, "prompt", "token id -1 at position 1"),
        (TEXT, {"model": "echo", "prompt": [[1], [999]]}, 400, "prompt", "token id 999"),
        (TEXT, {"model": "echo", "prompt": [1, None]}, 400, "prompt[1]", "valid integer"),
        (TEXT, {"model": "echo", "prompt": [True]}, 400, "prompt[0]", "valid"),
        (TEXT, {"model": "echo", "prompt": "a\ud800"}, 400, "prompt", "half a surrogate pair (\\ud800) at character 1"),
        (TEXT, {"model": "echo", "prompt": ["a"] * 9}, 400, "prompt", "9 prompts; this service takes 8 at a time"),
        (CHAT, say("a\ud800"), 400, "messages[0].content", "half a surrogate pair (\\ud800) at character 1"),
        (CHAT, b'{"model": "\xff"}', 400, None, "byte 11 is not UTF-8"),
        (CHAT, b"[" * 60_000, 400, None, "nested too deeply"),
        (CHAT, b'{"model": ' + b"9" * 5000 + b"}", 400, None, "an integer of too many digits"),
        (CHAT, b"", 400, None, "not JSON"),
        ("/v1/images", {}, 404, None, "POST /v1/images is not served. Use one of: POST /v1/chat/completions"),
        (CHAT, say("x", metadata=5), 400, "metadata", "valid dictionary"),
        (CHAT, say("x", metadata={"a": 5}), 400, "metadata.a", "valid string"),
        (CHAT, say("x", metadata={"a" * 65: ""}), 400, f"metadata.{'a' * 60}…", "at most 64 characters"),
        (CHAT, say("x", metadata={"a": "b" * 513}), 400, "metadata.a", "at most 512 characters"),
        (CHAT, say("x", metadata={str(number): "" for number in range(17)}), 400, "metadata", "at most 16 items"),
        (CHAT, say("x", user=5), 400, "user", "valid string"),
        (CHAT, say("x", chat_template_kwargs={"a": "\ud800"}), 400, "chat_template_kwargs", "half a surrogate pair"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(
    front: Front, path: str, body: Any, status: int, param: str | None, words: str
) -> None:
    response = front.post(path, body)
    error = error_of(response)
    assert (response.status_code, error["param"], error["type"]) == (status, param, "invalid_request_error")
    assert words in error["message"]
    assert error["code"] in get_args(Code)


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
