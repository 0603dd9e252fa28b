"""/v1/messages over the wire, with Anthropic's own client where it can send the request.

The scripted engine answers with the text of the prompt, and the template writes the text of all turns.
"""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
import pytest

from ..conftest import WAIT_SECONDS, Front
from ..test_streams import post
from .anthropic_shapes import checked_events, checked_message

if TYPE_CHECKING:
    import anthropic

URL = "/v1/messages"
COUNT = "/v1/messages/count_tokens"


def client_of(front: Front, **more: Any) -> "anthropic.Anthropic":
    """Anthropic's own client, which must not hide an error behind a retry."""
    import anthropic

    key = {"api_key": "none"} | more
    return anthropic.Anthropic(base_url=front.http, max_retries=0, timeout=WAIT_SECONDS, **key)


def ask(text: Any, **more: Any) -> dict[str, Any]:
    """A request for at most 50 tokens; the scripted engine answers with the same text."""
    return {"model": "echo", "max_tokens": 50, "messages": [{"role": "user", "content": text}]} | more


def events_of(text: str) -> list[Any]:
    """The events of a stream; each has its type as its name, and nothing else follows."""
    *events, nothing = text.split("\n\n")
    assert nothing == ""
    said = []
    for one in events:
        name, _, data = one.partition("\ndata: ")
        said.append(json.loads(data))
        assert name == f"event: {said[-1]['type']}"
    return said


def refused(response: httpx2.Response) -> tuple[int, str, str, str | None]:
    """Status, type, our code, and the field of a refusal in Anthropic's shape."""
    body = response.json()
    assert (set(body), body["type"]) == ({"type", "error"}, "error")
    assert set(body["error"]) == {"type", "message", "details"}
    details = body["error"]["details"]
    return response.status_code, body["error"]["type"], details["error_code"], details["param"]


def test_a_message_has_every_field_of_anthropics_type(front: Front) -> None:
    reply = front.post(URL, ask("日本語 😀", system="0"))
    message = checked_message(reply.json())
    size = len("0日本語 😀".encode())
    assert (message.content[0].text, message.stop_reason) == ("0日本語 😀", "end_turn")  # type: ignore[union-attr]
    usage = message.usage
    assert usage.input_tokens + (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0) == size
    assert usage.output_tokens == size + 1
    assert message.id.startswith("msg_")
    assert reply.headers["request-id"] == reply.headers["x-request-id"] == message.id


def test_a_stream_has_anthropics_events_in_their_order_and_adds_up(front: Front) -> None:
    events = events_of(front.post(URL, ask("héllo 😀", stream=True)).text)
    checked_events(events)
    assert [event["type"] for event in events[:2]] == ["message_start", "ping"]
    assert events[0]["message"]["usage"]["output_tokens"] == 0
    with client_of(front).messages.stream(**ask("héllo 😀")) as stream:
        assert "".join(stream.text_stream) == "héllo 😀"
        final = stream.get_final_message()
    assert (final.stop_reason, final.usage.output_tokens) == ("end_turn", len("héllo 😀".encode()) + 1)


def test_the_prompts_tokens_are_split_by_what_the_prefix_cache_had(own_front: Callable[..., Front]) -> None:
    front = own_front()
    text = "x" * 40  # two pages of 16 tokens, and 8 tokens

    def usage_of() -> tuple[int, int, int]:
        events = events_of(front.post(URL, ask(text, stream=True, max_tokens=1)).text)
        assert events[0]["message"]["usage"]["input_tokens"] == 40
        usage = events[-2]["usage"]
        return usage["input_tokens"], usage["cache_creation_input_tokens"], usage["cache_read_input_tokens"]

    assert [usage_of(), usage_of()] == [(8, 32, 0), (8, 0, 32)]


def test_system_blocks_turns_and_tool_results_make_a_conversation(front: Front) -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "c"},
        {"role": "user", "content": "d"},
    ]
    body = ask("", messages=messages, system=[{"type": "text", "text": "0", "cache_control": {"type": "ephemeral"}}])
    reply = front.post(URL, body)
    assert reply.json()["content"][0]["text"] == "0abcd"
    assert reply.headers["x-ignored-fields"] == "system[].cache_control"


def test_a_last_turn_of_the_assistant_is_continued(front: Front) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "bc"}]
    assert front.post(URL, ask("", messages=messages)).json()["content"][0]["text"] == "abc"


def test_the_reasons_of_an_end(front: Front) -> None:
    client = client_of(front)
    assert client.messages.create(**ask("abcdef", max_tokens=3)).stop_reason == "max_tokens"
    stopped = client.messages.create(**ask("one two three", stop_sequences=["thr", "wo t"]))
    assert (stopped.stop_reason, stopped.stop_sequence, stopped.content[0].text) == (  # type: ignore[union-attr]
        "stop_sequence", "wo t", "one t",
    )  # fmt: skip
    events = events_of(front.post(URL, ask("one two three", stop_sequences=["wo t"], stream=True)).text)
    checked_events(events)
    assert events[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "wo t"}


def test_tokens_are_counted_as_the_message_counts_them(front: Front) -> None:
    client = client_of(front)
    messages: Any = ask("日本語")["messages"]
    counted = client.messages.count_tokens(model="echo", messages=messages, system="0")
    assert counted.input_tokens == len("0日本語".encode())
    assert front.post(COUNT, {"model": "echo", "messages": messages, "tools": []}).status_code == 200


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an image": (ask([{"type": "image", "source": {}}]), "messages[0].content[0]"),
    "a document": (ask([{"type": "document", "source": {}}]), "messages[0].content[0]"),
    "an image of a tool": (
        ask([{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image", "source": {}}]}]),
        "messages[0].content[0].content[0]",
    ),
    "a tool of Anthropic's": (ask("a", tools=[{"type": "bash_1", "name": "b", "input_schema": {}}]), "tools[0].type"),
    "a server of tools": (ask("a", mcp_servers=[{"type": "url"}]), "mcp_servers"),
    "a container": (ask("a", container="c"), "container"),
    "hidden thoughts": (ask("a", thinking={"type": "adaptive", "display": "omitted"}), "thinking.display"),
    "a chat's stop": (ask("a", stop=["b"]), "stop"),
    "token ids": (ask("a", return_token_ids=True), "return_token_ids"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "param"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_built_is_refused_by_its_name(front: Front, body: dict[str, Any], param: str) -> None:
    reply = front.post(URL, body)
    assert refused(reply) == (400, "invalid_request_error", "unsupported_parameter", param), reply.text


USED = {"type": "tool_use", "id": "t", "name": "f"}
WRONG: dict[str, tuple[dict[str, Any], str, str | None]] = {
    "no max_tokens": (ask("a", max_tokens=None), "invalid_type", "max_tokens"),
    "no messages": (ask("a", messages=[]), "invalid_value", "messages"),
    "a wrong role": (ask("a", messages=[{"role": "tool", "content": "a"}]), "invalid_value", "messages[0].role"),
    "a string for a block": (ask(["a"]), "invalid_type", "messages[0].content[0]"),
    "a block without its text": (ask([{"type": "text"}]), "missing_required_parameter", "messages[0].content[0].text"),
    "half a character": (ask("\ud800"), "invalid_value", "messages[0].content"),
    "a tool's answer of the assistant": (
        ask("", messages=[{"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "t"}]}]),
        "invalid_value",
        "messages[0].content[0]",
    ),
    "half a character in a tool's input": (
        ask("", messages=[{"role": "assistant", "content": [USED | {"input": {"a": ["\ud800"]}}]}]),
        "invalid_value",
        "messages[0].content[0].input",
    ),
    "half a character in a kind": (ask([{"type": "\ud800"}]), "unsupported_parameter", "messages[0].content[0]"),
    "variables that the template does not read": (
        ask("a", chat_template_kwargs={"a": 1}), "invalid_value", "chat_template_kwargs",
    ),
    "a choice without a name": (
        ask("a", tool_choice={"type": "tool"}), "missing_required_parameter", "tool_choice.name",
    ),
    "too much": (ask("a", max_tokens=10**9), "context_length_exceeded", "max_tokens"),
    "an empty prompt": (ask(""), "invalid_value", "messages"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "code", "param"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named_in_the_words_of_the_request(
    front: Front, body: dict[str, Any], code: str, param: str | None
) -> None:
    assert refused(front.post(URL, body)) == (400, "invalid_request_error", code, param)


def test_errors_of_the_door_and_of_the_server_have_anthropics_shape(front: Front) -> None:
    import anthropic

    assert refused(front.post(URL, ask("a", model="other")))[:3] == (404, "not_found_error", "model_not_found")
    assert refused(front.post(URL, b"{"))[:3] == (400, "invalid_request_error", "invalid_json")
    assert refused(front.post(URL, b"[" * 5_000_000))[:2] == (413, "request_too_large")
    assert refused(httpx2.get(front.http + URL))[:3] == (405, "invalid_request_error", "method_not_supported")
    assert refused(httpx2.get(f"{front.http}{URL}/batches"))[:3] == (404, "not_found_error", "unknown_url")
    with pytest.raises(anthropic.NotFoundError) as caught:
        client_of(front).messages.create(**ask("a", model="other"))
    assert (caught.value.type, caught.value.error_code) == ("not_found_error", "model_not_found")
    assert caught.value.request_id


def test_both_headers_of_a_key_are_accepted(own_front: Callable[..., Front], tmp_path: Path) -> None:
    import anthropic

    file = tmp_path / "key"
    file.write_text("first\n")
    front = own_front(api_key_file=file)
    assert refused(front.post(URL, ask("a")))[:3] == (401, "authentication_error", "invalid_api_key")
    with pytest.raises(anthropic.AuthenticationError):
        client_of(front, api_key="second").messages.create(**ask("a"))
    for key in ({"api_key": "first"}, {"auth_token": "first", "api_key": None}):
        assert client_of(front, **key).messages.create(**ask("ab")).stop_reason == "end_turn"
    assert httpx2.get(f"{front.http}/v1/models", headers={"x-api-key": "first"}).status_code == 200
    assert httpx2.get(f"{front.http}/v1/models", headers={"x-api-key": ""}).status_code == 401


def test_a_failure_in_a_stream_is_anthropics_error_event(own_front: Callable[..., Front]) -> None:
    front = own_front(script="raise")
    events = events_of(front.post(URL, ask("ab", stream=True)).text)
    assert (events[-1]["type"], events[-1]["error"]["type"]) == ("error", "api_error")


def test_a_client_that_goes_ends_its_work(front: Front) -> None:
    address = urlsplit(front.http)
    body = json.dumps(ask("ab", stream=True, ignore_eos=True, max_tokens=190_000)).encode()
    with socket.create_connection((address.hostname, address.port), timeout=60) as client:
        client.sendall(post(URL, body))
        got = b""
        while b"text_delta" not in got:
            got += client.recv(65536)
    front.eventually("its work has ended", lambda: front.metric("graphpod_requests_running") == 0)


def test_unknown_fields_are_named_in_the_header(front: Front) -> None:
    block = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    reply = front.post(URL, ask([block], invented=1, metadata={"user_id": None}, thinking={"type": "disabled"}))
    assert reply.status_code == 200, reply.text
    assert reply.headers["x-ignored-fields"] == "invented, metadata, messages[].content[].cache_control"
    anthropics = client_of(front).messages.with_raw_response.create(**ask("a", service_tier="auto"))
    assert anthropics.headers["x-ignored-fields"] == "service_tier"


def test_floods_are_refused(front: Front) -> None:
    turn = {"role": "user", "content": "a"}
    assert front.post(URL, ask("", messages=[turn] * 9000)).status_code == 400
    assert front.post(URL, ask([{"type": "text", "text": "a"}] * 9000)).status_code == 400
    assert front.post(URL, ask("", messages=[turn] * 100_000)).status_code == 413
    nested: Any = {}
    for _ in range(300):
        nested = {"a": nested}
    used = {"type": "tool_use", "id": "t", "name": "f", "input": nested}
    deep = ask("", messages=[{"role": "assistant", "content": [used]}, turn])
    assert refused(front.post(URL, deep)) == (
        400, "invalid_request_error", "invalid_value", "messages[0].content[0].input",
    )  # fmt: skip
