"""What the API port says of the server itself, and the fields of requests that have no effect."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from graphpod_policy import ServingConfig
from graphpod_runtime.front.openai.unbuilt_fields import MAX_IGNORED, header_of

from .conftest import Front, start_front
from .test_openai import CHAT, TEXT, error_of, say

VOLATILE = re.compile(r"^(?:process_|python_|graphpod_http_requests_total).*\n", re.MULTILINE)


def get(front: Front, path: str, method: str = "GET") -> httpx2.Response:
    return httpx2.request(method, front.http + path)


@pytest.mark.parametrize("path", ["/health", "/ping"])
def test_a_ready_server_is_healthy_in_an_empty_body(front: Front, path: str) -> None:
    answer = get(front, path)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["x-request-id"].startswith("req-")
    assert get(front, path, "HEAD").status_code == 200


def test_before_ready_health_is_503_and_the_rest_answers(tmp_path: Path) -> None:
    front = start_front(tmp_path, script="hang", ready=False)
    try:
        refused = get(front, "/health")
        assert (refused.status_code, error_of(refused)["code"], refused.headers["retry-after"]) == (
            503,
            "not_ready",
            "1",
        )
        assert [get(front, path).status_code for path in ("/version", "/load", "/metrics")] == [200] * 3
        assert front.post("/tokenize", {"prompt": "a"}).status_code == 503
    finally:
        front.process.kill()
        front.process.wait()


def test_the_version_is_the_warm_up_reports_and_the_load_counts_open_requests(front: Front) -> None:
    assert get(front, "/version").json() == {"version": front.get("/warmup").json()["engine"]}
    front.eventually("no request is open", lambda: get(front, "/load").json() == {"server_load": 0})
    body = say("x" * 2000, stream=True, ignore_eos=True)
    with httpx2.stream("POST", front.http + CHAT, json=body) as stream:
        lines = stream.iter_lines()  # the stream ends with it
        assert next(lines).startswith("data: ")
        assert get(front, "/load").json() == {"server_load": 1}
    front.eventually("it is over", lambda: get(front, "/load").json() == {"server_load": 0})


def test_metrics_are_those_of_the_admin_port(front: Front) -> None:
    def both() -> list[httpx2.Response]:
        return [get(front, "/metrics"), front.get("/metrics")]

    own, admin = both()
    assert own.headers["content-type"] == admin.headers["content-type"]
    assert "graphpod_requests_total" in own.text
    # What a request of another test has left may be counted between the two.
    front.eventually("both say the same", lambda: len({VOLATILE.sub("", answer.text) for answer in both()}) == 1)


def test_the_spec_closes_metrics_on_the_api_port_alone(own_front: Callable[..., Front]) -> None:
    front = own_front(serving=ServingConfig(max_queue=4, drain_seconds=30, http_metrics=False))
    closed = get(front, "/metrics")
    assert (closed.status_code, error_of(closed)["code"]) == (404, "unknown_url")
    assert "GET /metrics is not served" in error_of(closed)["message"]
    assert "GET /metrics" not in error_of(get(front, "/nothing"))["message"]
    assert (front.get("/metrics").status_code, get(front, "/health").status_code) == (200, 200)


@pytest.mark.parametrize("path", ["/health", "/ping", "/version", "/load", "/metrics"])
def test_another_method_is_405_in_openais_shape(front: Front, path: str) -> None:
    answer = httpx2.post(front.http + path, content=b"x" * 100_000)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert error_of(answer)["code"] == "method_not_supported"


def test_a_404_names_what_the_port_serves(front: Front) -> None:
    message = error_of(get(front, "/nothing"))["message"]
    assert all(word in message for word in ("POST /tokenize", "GET /health", "GET /metrics"))


def test_tokens_come_and_go_back(front: Front) -> None:
    answer = front.post("/tokenize", {"prompt": "hé<end>", "return_token_strs": True}).json()
    assert (answer["count"], answer["max_model_len"]) == (4, 200_000)
    assert (answer["tokens"][-1], answer["token_strs"][0]) == (256, "h")
    assert front.post("/detokenize", {"model": "echo", "tokens": answer["tokens"]}).json() == {"prompt": "hé<end>"}
    assert front.post("/detokenize", {"tokens": []}).json() == {"prompt": ""}
    assert front.post("/tokenize", {"prompt": ""}).json() == {
        "count": 0, "max_model_len": 200_000, "tokens": [], "token_strs": None,
    }  # fmt: skip
    chat = front.post("/tokenize", say("ab", continue_final_message=True)).json()
    assert front.post("/detokenize", {"tokens": chat["tokens"]}).json() == {"prompt": "ab"}


@pytest.mark.parametrize(
    ("path", "body", "ignored"),
    [
        (CHAT, say("x", brand_new=1, other=None, use_beam_search=False), "brand_new"),
        (CHAT, say("x", user="u", seed=1), "user"),
        (CHAT, say("x", stream=True, stream_options={"new": 1}), "stream_options.new"),
        (CHAT, say([{"type": "text", "text": "a", "cache_control": {}}]), "messages[].content[].cache_control"),
        (CHAT, {"model": "echo", "messages": [{"role": "user", "content": "x", "new": 1}]}, "messages[].new"),
        (TEXT, {"model": "echo", "prompt": "x", "add_generation_prompt": False}, "add_generation_prompt"),
        (TEXT, {"model": "echo", "prompt": "x", "é \r\n": 1}, "????"),
        ("/tokenize", {"prompt": "x", "truncate": 5}, "truncate"),
        ("/detokenize", {"tokens": [1], "truncate": 5}, "truncate"),
        (
            CHAT,
            say("x", response_format={"type": "text", "json_schema": {"name": "n", "strict": True, "schema": {}}}),
            "response_format.json_schema.name, response_format.json_schema.strict",
        ),
        (
            "/v1/responses",
            {"input": "x", "text": {"format": {"type": "text", "name": "n", "strict": False}}},
            "text.format.name, text.format.strict",
        ),
        (CHAT, say("x", n=1, parallel_tool_calls=False, tool_choice="none", logprobs=False), None),
    ],
)  # fmt: skip
def test_a_field_without_effect_is_named_in_the_answers_header(
    front: Front, path: str, body: dict[str, Any], ignored: str | None
) -> None:
    answer = front.post(path, body)
    assert (answer.status_code, answer.headers.get("x-ignored-fields")) == (200, ignored)


def test_the_header_of_ignored_fields_is_bounded(front: Front) -> None:
    many = {f"{number}{'y' * 1000}": 1 for number in range(500)}
    header = front.post(TEXT, {"model": "echo", "prompt": "x"} | many).headers["x-ignored-fields"]
    names = header.split(", ")
    assert (len(names), names[-1]) == (MAX_IGNORED + 1, f"+{500 - MAX_IGNORED}")
    assert max(map(len, names)) <= 61
    assert header_of({}) == ""


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"role": "assistant", "content": "x", "function_call": {"name": "f"}}, "function_call"),
        ({"role": "assistant", "content": "x", "prefix": True}, "prefix"),
    ],
)
def test_a_field_of_a_message_that_the_prompt_would_hold_is_refused_by_name(
    front: Front, message: dict[str, Any], field: str
) -> None:
    error = error_of(front.post(CHAT, {"model": "echo", "messages": [message]}))
    assert (error["param"], error["code"]) == (f"messages[0].{field}", "unsupported_parameter")


@pytest.mark.parametrize(
    ("format", "report"),
    [
        ("TEXT", "TEXT named_metrics.kv_cache_usage_perc=0.0, named_metrics.num_requests_waiting=0.0"),
        ("json", 'JSON {"named_metrics": {"kv_cache_usage_perc": 0.0, "num_requests_waiting": 0.0}}'),
        ("BIN", None),
        ("", None),
    ],
)
def test_an_answer_reports_the_load_to_a_client_that_asks_for_it(front: Front, format: str, report: str | None) -> None:
    # Requests of other tests, which the front is shared with, give their pages back a pass after their answers.
    front.eventually("no page in use", lambda: front.metric("graphpod_kv_cache_usage_ratio") == 0)
    asking = {"endpoint-load-metrics-format": format}
    answer = httpx2.get(front.http + "/v1/models", headers=asking)
    assert (answer.status_code, answer.headers.get("endpoint-load-metrics")) == (200, report)
    missing = httpx2.get(front.http + "/v1/nothing", headers=asking)
    assert (missing.status_code, missing.headers.get("endpoint-load-metrics")) == (404, None)
