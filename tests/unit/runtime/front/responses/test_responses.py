"""/v1/responses over the wire, with OpenAI's own client where it can send the request.

The scripted engine answers with the text of the prompt, and the template writes the text of all turns.
"""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai
import pytest

from ..conftest import Front
from ..test_streams import post
from .openai_shapes import checked_events, checked_response

URL = "/v1/responses"
ENDLESS = {"extra_body": {"ignore_eos": True}}


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


def refused(response: httpx2.Response) -> tuple[int, str, str | None]:
    """Status, code and field of a refusal."""
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return response.status_code, error["code"], error["param"]


def test_a_response_has_every_field_of_openais_type(front: Front) -> None:
    reply = front.post(URL, {"input": "日本語 😀", "temperature": 0.5, "metadata": {"a": "b"}, "user": "me"})
    assert reply.status_code == 200, reply.text
    said = checked_response(reply.json())
    size = len("日本語 😀".encode())
    assert (said.output_text, said.status, said.model) == ("日本語 😀", "completed", "echo")
    assert (said.temperature, said.top_p, said.metadata, said.user) == (0.5, 1.0, {"a": "b"}, "me")
    assert said.usage is not None
    assert (said.usage.input_tokens, said.usage.output_tokens, said.usage.total_tokens) == (
        size,
        size + 1,
        2 * size + 1,
    )
    assert said.id.startswith("resp_")
    assert reply.headers["x-request-id"] == said.id
    assert "x-ignored-fields" not in reply.headers


def test_a_stream_has_openais_events_in_their_order_and_adds_up(front: Front) -> None:
    events = events_of(front.post(URL, {"input": "héllo 😀", "stream": True}).text)
    checked_events(events)
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    final = checked_response(events[-1]["response"])
    assert ("".join(deltas), final.output_text, final.status) == ("héllo 😀", "héllo 😀", "completed")
    stored = front.client().responses.retrieve(final.id)
    assert stored.model_dump() == final.model_dump()


def test_the_clients_stream_and_parse_helpers_read_it(front: Front) -> None:
    client = front.client()
    with client.responses.stream(model="echo", input="ab") as stream:
        kinds = [event.type for event in stream]
        assert stream.get_final_response().output_text == "ab"
    assert kinds[-1] == "response.completed"
    assert client.responses.parse(model="echo", input="ab").output_text == "ab"


def test_instructions_items_and_parts_make_the_turns_of_a_conversation(front: Front) -> None:
    answer = {
        "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "c", "annotations": [], "logprobs": []}],
    }  # fmt: skip
    items = [
        {"role": "developer", "content": "a"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "b"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        answer,
        {"role": "user", "content": [{"type": "input_text", "text": "d"}, {"type": "text", "text": "e"}]},
    ]
    reply = front.post(URL, {"input": items, "instructions": "0"})
    assert checked_response(reply.json()).output_text == "0abcde"
    assert reply.headers["x-ignored-fields"] == "input[].reasoning"


def test_an_answer_that_its_token_limit_ends_is_incomplete(front: Front) -> None:
    whole = checked_response(front.post(URL, {"input": "abcdef", "max_output_tokens": 3}).json())
    assert (whole.status, whole.output_text) == ("incomplete", "abc")
    assert whole.incomplete_details is not None
    assert whole.incomplete_details.reason == "max_output_tokens"
    events = events_of(front.post(URL, {"input": "abcdef", "max_output_tokens": 3, "stream": True}).text)
    checked_events(events)
    assert events[-1]["type"] == "response.incomplete"


def test_log_probabilities_are_sent_where_they_are_included(front: Front) -> None:
    body = {"input": "ab", "include": ["message.output_text.logprobs"], "top_logprobs": 3}
    whole = checked_response(front.post(URL, body).json())
    (message,) = whole.output
    assert message.type == "message"
    assert message.content[0].type == "output_text"
    assert [len(one.top_logprobs) for one in message.content[0].logprobs or ()] == [3, 3]
    events = events_of(front.post(URL, body | {"stream": True}).text)
    checked_events(events)
    assert all(event["logprobs"] for event in events if event["type"] == "response.output_text.delta")
    without = front.post(URL, {"input": "ab", "top_logprobs": 3})
    assert without.json()["output"][0]["content"][0]["logprobs"] == []
    assert without.headers["x-ignored-fields"] == "top_logprobs"


def test_prompt_and_answer_are_sent_as_tokens_where_they_are_wanted(front: Front) -> None:
    body = {"input": "日ab", "enable_response_messages": True}
    events = events_of(front.post(URL, body | {"stream": True}).text)
    checked_events(events)
    for said in (front.post(URL, body).json(), events[-1]["response"]):
        checked_response(said)
        (prompt,), (answer,) = said["input_messages"], said["output_messages"]
        assert prompt == answer
        assert (prompt["type"], prompt["message"], len(prompt["tokens"])) == ("raw_message_tokens", "日ab", 5)
    assert "input_messages" not in front.post(URL, {"input": "a"}).json()


# The store.


def test_a_conversation_goes_on_from_a_stored_response_without_its_instructions(front: Front) -> None:
    client = front.client()
    first = client.responses.create(input="ab", instructions="0")
    second = client.responses.create(input="c", previous_response_id=first.id)
    third = client.responses.create(input="d", previous_response_id=first.id, instructions="1")
    assert first.output_text == "0ab"
    assert second.output_text == "ab0abc"  # input, answer, input
    assert third.output_text == "1ab0abd"
    assert client.responses.create(input="e", previous_response_id=second.id).output_text == "ab0abcab0abce"


def test_what_is_not_stored_is_not_found(front: Front) -> None:
    client = front.client()
    unstored = client.responses.create(input="ab", store=False)
    for call in (client.responses.retrieve, client.responses.cancel, client.responses.delete):
        with pytest.raises(openai.NotFoundError, match=r"Response with id .* not found\."):
            call(unstored.id)
    status, code, param = refused(front.post(URL, {"input": "a", "previous_response_id": unstored.id}))
    assert (status, code, param) == (400, "previous_response_not_found", "previous_response_id")


def test_a_deleted_response_is_gone(front: Front) -> None:
    client = front.client()
    stored = client.responses.create(input="ab")
    said = httpx2.delete(f"{front.http}{URL}/{stored.id}")
    assert said.json() == {"id": stored.id, "deleted": True, "object": "response"}
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(stored.id)


def test_the_input_items_of_a_response_are_listed_in_pages(front: Front) -> None:
    client = front.client()
    items: Any = [{"role": "user", "content": f"t{at}"} for at in range(25)]
    stored = client.responses.create(input=items)
    listed = list(client.responses.input_items.list(stored.id, order="asc", limit=7))
    assert [item.content[0].text for item in listed] == [f"t{at}" for at in range(25)]  # type: ignore[union-attr]
    newest = client.responses.input_items.list(stored.id, limit=1).data
    assert newest[0].content[0].text == "t24"  # type: ignore[union-attr]
    limits = ("0", "x", "%C2%B2", "101", "0000000010000", "1" * 4400)
    for query in (*(f"limit={limit}" for limit in limits), "order=up", "after=nothing"):
        assert front_get(front, f"{URL}/{stored.id}/input_items?{query}").status_code == 400


def front_get(front: Front, path: str) -> httpx2.Response:
    """GET on the API port."""
    return httpx2.get(front.http + path, timeout=60)


# In the background, and cancelled.


def test_a_background_response_is_queued_and_then_read_by_its_id(front: Front) -> None:
    client = front.client()
    queued = client.responses.create(input="ab", background=True)
    assert (queued.status, queued.output) == ("queued", [])
    front.eventually("it ends", lambda: client.responses.retrieve(queued.id).status == "completed")
    ended = client.responses.retrieve(queued.id)
    checked_response(json.loads(ended.model_dump_json(exclude_unset=True)))
    assert (ended.output_text, ended.background) == ("ab", True)
    assert client.responses.cancel(queued.id).status == "completed"


def test_a_cancelled_background_response_stays_cancelled_and_its_work_ends(front: Front) -> None:
    client = front.client()
    running = client.responses.create(input="ab", background=True, extra_body={"ignore_eos": True})
    front.eventually("it runs", lambda: client.responses.retrieve(running.id).status == "in_progress")
    front.eventually("it has pages", lambda: front.metric("graphpod_requests_running") > 0)
    assert refused(front.post(URL, {"input": "a", "previous_response_id": running.id}))[:2] == (400, "invalid_value")
    assert client.responses.cancel(running.id).status == "cancelled"
    front.eventually("its work has ended", lambda: front.metric("graphpod_requests_running") == 0)
    assert client.responses.retrieve(running.id).status == "cancelled"
    assert client.responses.cancel(running.id).status == "cancelled"
    assert refused(front.post(URL, {"input": "a", "previous_response_id": running.id}))[:2] == (400, "invalid_value")


def test_one_that_is_deleted_while_it_runs_ends(front: Front) -> None:
    client = front.client()
    running = client.responses.create(input="ab", background=True, extra_body={"ignore_eos": True})
    client.responses.delete(running.id)
    front.eventually("its work has ended", lambda: front.metric("graphpod_requests_running") == 0)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(running.id)


def test_the_places_of_background_responses_are_those_of_all_requests(own_front: Callable[..., Front]) -> None:
    front = own_front()
    client = front.client()
    running = [client.responses.create(input="a", background=True, extra_body={"ignore_eos": True}) for _ in range(8)]
    assert refused(front.post(URL, {"input": "a"}))[:2] == (503, "queue_full")
    for one in running:
        client.responses.cancel(one.id)
    assert front.post(URL, {"input": "a"}).status_code == 200


def test_a_synchronous_response_cannot_be_cancelled(front: Front) -> None:
    client = front.client()
    stored = client.responses.create(input="ab")
    with pytest.raises(openai.BadRequestError, match=r"Cannot cancel a synchronous response\."):
        client.responses.cancel(stored.id)


def test_a_client_that_goes_cancels_its_stream_and_the_store_says_so(front: Front) -> None:
    address = urlsplit(front.http)
    body = json.dumps({"input": "ab", "stream": True, "ignore_eos": True}).encode()
    with socket.create_connection((address.hostname, address.port), timeout=60) as client:
        client.sendall(post(URL, body))
        got = b""
        while b"output_text.delta" not in got:
            got += client.recv(65536)
    begun = next(line for line in got.decode().splitlines() if line.startswith("data: "))
    id = json.loads(begun.removeprefix("data: "))["response"]["id"]
    front.eventually("it is cancelled", lambda: front.client().responses.retrieve(id).status == "cancelled")
    assert front.client().responses.retrieve(id).output_text.startswith("a")
    front.eventually("its work has ended", lambda: front.metric("graphpod_requests_running") == 0)


def test_a_response_is_read_while_its_stream_runs(front: Front) -> None:
    client = front.client()
    with client.responses.create(input="ab", stream=True, **ENDLESS) as stream:
        first = next(iter(stream))
        assert first.type == "response.created"
        assert client.responses.retrieve(first.response.id).status == "in_progress"
        with pytest.raises(openai.BadRequestError, match="synchronous"):
            client.responses.cancel(first.response.id)


def test_an_engine_that_dies_fails_the_response(own_front: Callable[..., Front]) -> None:
    front = own_front(script="raise")
    reply = front.post(URL, {"input": "ab", "stream": True})
    events = events_of(reply.text)
    checked_events(events)
    assert (events[-1]["type"], events[-1]["response"]["error"]["code"]) == ("response.failed", "server_error")


# What is refused.

TOOL = {"type": "function", "name": "f", "parameters": {}}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an image": ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0]"),
    "an item of another kind": ({"input": [{"type": "computer_call"}]}, "input[0]"),
    "a web search": ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    "a stored prompt": ({"prompt": {"id": "p"}}, "prompt"),
    "a conversation": ({"conversation": "conv_1"}, "conversation"),
    "chat's messages": ({"messages": []}, "messages"),
    "chat's max_tokens": ({"max_tokens": 5}, "max_tokens"),
    "truncation": ({"truncation": "auto"}, "truncation"),
    "another tier": ({"service_tier": "priority"}, "service_tier"),
    "a background stream": ({"background": True, "stream": True}, "background"),
    "something to include": ({"include": ["file_search_call.results"]}, "include"),
    "encrypted thoughts": ({"input": [{"type": "reasoning", "encrypted_content": "x"}]}, "input[0].encrypted_content"),
}


@pytest.mark.parametrize(("body", "param"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_built_is_refused_by_its_name(front: Front, body: dict[str, Any], param: str) -> None:
    reply = front.post(URL, {"input": "a"} | body)
    assert refused(reply) == (400, "unsupported_parameter", param), reply.text


TEXT = {"type": "output_text", "text": "a"}
DEEP = json.loads("[" * 900 + "]" * 900)


def said(content: Any) -> dict[str, Any]:
    """A turn of the assistant."""
    return {"type": "message", "role": "assistant", "content": content}


WRONG: dict[str, tuple[dict[str, Any], str, str | None]] = {
    "no input": ({"input": None}, "invalid_type", "input"),
    "no items": ({"input": []}, "invalid_value", "input"),
    "a number": ({"input": 5}, "invalid_type", "input"),
    "items of strings": ({"input": ["a"]}, "invalid_type", "input[0]"),
    "a wrong role": ({"input": [{"role": "tool", "content": "a"}]}, "invalid_value", "input[0].role"),
    "no content": ({"input": [{"role": "user"}]}, "missing_required_parameter", "input[0].content"),
    "half a character": ({"input": [{"role": "user", "content": "\ud800"}]}, "invalid_value", "input[0].content"),
    "half a character in what is repeated": ({"metadata": {"a": "\ud800"}}, "invalid_value", "metadata.a"),
    "half a character in a tool": ({"tools": [TOOL | {"description": "\ud800"}]}, "invalid_value", "tools"),
    "a deep tool": ({"tools": [TOOL | {"parameters": json.loads("[" * 300 + "]" * 300)}]}, "invalid_value", "tools"),
    "half a character in a kind": ({"input": [{"type": "\ud800"}]}, "unsupported_parameter", "input[0]"),
    "half a character in an id": ({"input": [said("a") | {"id": "\ud800"}]}, "invalid_value", "input[0].id"),
    "half a character in annotations": (
        {"input": [said([TEXT | {"annotations": [{"a": "\ud800"}]}])]}, "invalid_value",
        "input[0].content[0].annotations",
    ),
    "deep log-probabilities": (
        {"input": [said([TEXT | {"logprobs": DEEP}])]}, "invalid_value", "input[0].content[0].logprobs",
    ),
    "a deep summary": ({"input": [{"type": "reasoning", "summary": DEEP}]}, "invalid_value", "input[0].summary"),
    "variables that the template does not read": (
        {"chat_template_kwargs": {"a": 1}}, "invalid_value", "chat_template_kwargs",
    ),
    "a background that is not stored": ({"background": True, "store": False}, "invalid_value", "background"),
    "too much": ({"max_output_tokens": 10**9}, "context_length_exceeded", "max_output_tokens"),
    "an empty prompt": ({"input": ""}, "invalid_value", "input"),
    "another model": ({"model": "other"}, "model_not_found", "model"),
    "options without a stream": ({"stream_options": {}}, "invalid_value", "stream_options"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "code", "param"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named_in_the_words_of_the_request(
    front: Front, body: dict[str, Any], code: str, param: str | None
) -> None:
    reply = front.post(URL, {"input": "a"} | body)
    assert refused(reply)[1:] == (code, param), reply.text
    assert reply.status_code in (400, 404)


def test_an_empty_response_id_and_a_foreign_one_are_not_found(front: Front) -> None:
    for id in ("resp_none", "chatcmpl-1", "%00", "x" * 5000, "😀"):
        assert front_get(front, f"{URL}/{id}").json()["error"]["code"] == "response_not_found"
        reply = front.post(URL, {"input": "a", "previous_response_id": id})
        assert refused(reply)[:2] == (400, "previous_response_not_found")
    assert front_get(front, f"{URL}/resp_none?stream=true").status_code == 400


def test_unknown_fields_are_named_in_the_header(front: Front) -> None:
    items = [{"role": "user", "content": [{"type": "input_text", "text": "a", "hint": 1}], "mood": "x"}]
    reply = front.post(URL, {"input": items, "invented": 1, "reasoning": {"summary": "auto"}})
    assert reply.status_code == 200, reply.text
    assert reply.headers["x-ignored-fields"] == "invented, input[].mood, input[].content[].hint, reasoning.summary"


def test_all_of_it_is_behind_the_key(own_front: Callable[..., Front], tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("first\n")
    front = own_front(api_key_file=file)
    for method, path in (
        ("POST", URL), ("GET", f"{URL}/x"), ("DELETE", f"{URL}/x"), ("POST", f"{URL}/x/cancel"),
        ("GET", f"{URL}/x/input_items"),
    ):  # fmt: skip
        assert httpx2.request(method, front.http + path).status_code == 401
    assert front.client("first").responses.create(input="ab").output_text == "ab"


# Floods.


def test_ten_thousand_items_and_more_are_refused_in_a_bounded_time(front: Front) -> None:
    turn = {"role": "user", "content": "a"}
    assert refused(front.post(URL, {"input": [turn] * 9000}))[:2] == (400, "invalid_value")
    assert front.post(URL, {"input": [turn] * 100_000}).status_code == 413
    assert front.post(URL, b'{"input":' + b"[" * 100_000 + b"]" * 100_000 + b"}").status_code == 413
    assert front.post(URL, b'{"input":' + b"[" * 900 + b"]" * 900 + b"}").status_code == 400


def test_a_conversation_has_no_more_turns_than_a_chat(front: Front) -> None:
    turn = {"role": "user", "content": "a"}
    first = front.post(URL, {"input": [turn] * 4096}).json()
    assert first["status"] == "completed"
    second = front.post(URL, {"input": [turn] * 4096, "previous_response_id": first["id"]})
    assert refused(second) == (400, "invalid_value", "input")
