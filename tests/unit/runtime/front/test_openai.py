"""The OpenAI API over the wire, with OpenAI's own client where it can send the request."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from graphpod_runtime.front.openai.request import Message
from graphpod_runtime.front.requests.errors import ApiError
from graphpod_runtime.front.text.tokenizer import REPLACEMENT

from .conftest import Front, write_model

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


def say(text: str, **more: Any) -> dict[str, Any]:
    """A chat request; the scripted engine answers with the same text."""
    return {"model": "echo", "messages": [{"role": "user", "content": text}]} | more


NESTED: list[Any] = []
for _ in range(100):
    NESTED = [NESTED]


def error_of(response: httpx2.Response) -> dict[str, Any]:
    """The error object, which has OpenAI's four fields."""
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def test_the_client_lists_the_model(front: Front) -> None:
    (model,) = front.client().models.list().data
    assert (model.id, model.object, model.owned_by) == ("echo", "model", "graphpod")


def test_the_client_retrieves_the_model_by_name(front: Front) -> None:
    assert front.client().models.retrieve("echo").id == "echo"
    with pytest.raises(openai.NotFoundError, match="this service serves 'echo'"):
        front.client().models.retrieve("other/model")


def test_a_chat_is_answered_whole(front: Front) -> None:
    reply = front.client().chat.completions.create(**say("日本語 😀", temperature=0))
    (choice,) = reply.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "日本語 😀", "stop")
    size = len("日本語 😀".encode())
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (size, size + 1)
    assert reply.usage.total_tokens == 2 * size + 1
    assert (reply.object, reply.model) == ("chat.completion", "echo")


def test_a_chat_is_streamed_role_first_finish_last_usage_when_asked(front: Front) -> None:
    stream = front.client().chat.completions.create(
        **say("héllo 😀"), stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert len({chunk.id for chunk in chunks}) == 1
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    *content, last = chunks
    assert content[0].choices[0].delta.role == "assistant"
    assert all(chunk.choices[0].delta.role is None for chunk in content[1:])
    assert [chunk.choices[0].finish_reason for chunk in content] == [None] * (len(content) - 1) + ["stop"]
    pieces = [chunk.choices[0].delta.content or "" for chunk in content]
    assert "".join(pieces) == "héllo 😀"
    assert REPLACEMENT not in "".join(pieces)
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens == len("héllo 😀".encode()) + 1


def test_the_bytes_of_a_stream_are_events_that_end_in_done(front: Front) -> None:
    response = front.post(CHAT, say("ab", stream=True))
    assert response.headers["content-type"].startswith("text/event-stream")
    *events, done, nothing = response.text.split("\n\n")
    assert (done, nothing) == ("data: [DONE]", "")
    assert all("usage" not in json.loads(event.removeprefix("data: ")) for event in events)


def test_several_prompts_give_several_choices_whole_and_streamed(front: Front) -> None:
    client = front.client()
    whole = client.completions.create(model="echo", prompt=["abc", "de"])
    assert [(c.index, c.text, c.finish_reason) for c in whole.choices] == [(0, "abc", "stop"), (1, "de", "stop")]
    assert whole.usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (5, 7)
    texts, reasons = ["", ""], [None, None]
    for chunk in client.completions.create(model="echo", prompt=["abc", "de"], stream=True):
        (choice,) = chunk.choices
        texts[choice.index] += choice.text
        reasons[choice.index] = choice.finish_reason
    assert (texts, reasons) == (["abc", "de"], ["stop", "stop"])


def test_prompts_may_be_token_ids(front: Front) -> None:
    text = front.client().completions.create(model="echo", prompt="ab").choices[0].text
    (one,) = front.client().completions.create(model="echo", prompt=[64, 65, 66]).choices
    two = front.client().completions.create(model="echo", prompt=[[64, 65, 66], [66]]).choices
    assert text == "ab"
    assert len(one.text) == 3
    assert [choice.text for choice in two] == [one.text, one.text[2]]


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_an_answer_ends_at_its_limit(front: Front, field: str) -> None:
    reply = front.post(CHAT, say("abcdef", **{field: 3})).json()
    assert reply["choices"][0]["message"]["content"] == "abc"
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["usage"]["completion_tokens"] == 3


def test_a_completion_has_sixteen_tokens_unless_asked(front: Front) -> None:
    assert front.post(TEXT, {"model": "echo", "prompt": "x" * 40}).json()["choices"][0]["text"] == "x" * 16


def test_ignore_eos_goes_on_to_the_limit(front: Front) -> None:
    reply = front.post(TEXT, {"model": "echo", "prompt": "ab", "ignore_eos": True, "max_tokens": 8}).json()
    assert reply["choices"][0]["text"] == "ababab"  # two end tokens are no text
    assert reply["usage"]["completion_tokens"] == 8


def test_a_stop_string_across_tokens_ends_the_text_before_it(front: Front) -> None:
    request = say("one two three", stop=["thr", "wo t"])
    client = front.client()
    choice = client.chat.completions.create(**request, extra_body={"ignore_eos": True}).choices[0]
    assert (choice.message.content, choice.finish_reason) == ("one t", "stop")
    chunks = list(client.chat.completions.create(**request, extra_body={"ignore_eos": True}, stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert (text, chunks[-1].choices[0].finish_reason) == ("one t", "stop")
    front.eventually("its pages are free", lambda: front.metric("graphpod_kv_cache_usage_ratio") == 0)


def test_a_stop_token_ends_the_answer_and_is_no_text(front: Front) -> None:
    request = {"model": "echo", "prompt": [64, 65, 66], "max_tokens": 8}
    whole = front.post(TEXT, request).json()["choices"][0]
    stopped = front.post(TEXT, request | {"stop_token_ids": [65]}).json()["choices"][0]
    assert (stopped["text"], stopped["finish_reason"]) == (whole["text"][0], "stop")


def test_harmless_and_neutral_fields_are_accepted(front: Front) -> None:
    neutral = {"n": 1, "presence_penalty": 0.0, "logprobs": False, "tools": None, "top_k": -1}
    extras = {"user": "u", "metadata": {"a" * 64: "b" * 512}, "store": False, "service_tier": "auto"} | neutral
    assert front.post(CHAT, say("ok", seed=7, top_p=0.5, **extras)).status_code == 200


def test_an_id_of_the_model_that_the_tokenizer_does_not_have_is_a_token_like_others(front: Front) -> None:
    """Tokenizers have gaps, and models more rows than tokens: what counts is the model's embedding."""
    assert front.get("/warmup").json()["vocabulary"] == 260
    reply = front.post(TEXT, {"model": "echo", "prompt": [64, 259], "max_tokens": 2})
    assert reply.status_code == 200
    assert reply.json()["usage"] == {
        "prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4, "prompt_tokens_details": {"cached_tokens": 0},
    }  # fmt: skip


def test_what_nobody_asked_for_is_cut_to_what_is_left(own_front: Callable[..., Front]) -> None:
    front = own_front(max_model_len=2048)
    reply = front.post(TEXT, {"model": "echo", "prompt": "x" * 2043, "ignore_eos": True}).json()
    assert reply["usage"]["completion_tokens"] == 5  # of the sixteen that are the default


@pytest.mark.parametrize("options", [{"include_usage": None}, {"include_obfuscation": False}])
def test_options_of_a_stream_that_change_nothing_are_accepted(front: Front, options: dict[str, Any]) -> None:
    assert front.post(CHAT, say("x", stream=True, stream_options=options)).status_code == 200


def test_a_speakers_name_reaches_the_template() -> None:
    turn = Message.model_validate({"role": "developer", "content": "a", "name": "bob"})
    assert turn.plain(0) == {"role": "system", "content": "a", "name": "bob"}


def test_text_parts_are_joined_and_a_tool_call_is_written_where_the_template_writes_none(front: Front) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    reply = front.post(CHAT, {"model": "echo", "messages": [{"role": "user", "content": parts}]}).json()
    assert reply["choices"][0]["message"]["content"] == "ab"
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turn = {"role": "assistant", "content": None, "tool_calls": [call]}
    reply = front.post(CHAT, {"model": "echo", "messages": [turn]}).json()
    written = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    assert reply["choices"][0]["message"]["content"] == written


def test_an_assistants_tool_calls_and_their_answers_reach_the_template() -> None:
    call = {"index": 0, "id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": [1]}'}}
    turn = {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None, "annotations": []}
    assert Message.model_validate(turn).plain(0) == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": [1]}}}],
    }
    broken = call | {"function": {"name": "f", "arguments": "{"}}
    plain = Message.model_validate(turn | {"tool_calls": [broken]}).plain(0)
    assert plain["tool_calls"][0]["function"]["arguments"] == "{"
    answer = {"role": "tool", "tool_call_id": "1", "content": "7"}
    assert Message.model_validate(answer).plain(1) == answer
    deep = call | {"function": {"name": "f", "arguments": json.dumps({"a": NESTED})}}
    with pytest.raises(ApiError, match="16 levels"):
        Message.model_validate(turn | {"tool_calls": [deep]}).plain(0)
    with pytest.raises(ApiError, match="belongs to a turn of role 'assistant'"):
        Message.model_validate({"role": "user", "content": "x", "tool_calls": [call]}).plain(0)


def test_usage_says_how_much_of_a_prompt_was_cached_and_a_salt_keeps_it_apart(front: Front) -> None:
    def cached(**more: object) -> int:
        prompt = "the beginning of a conversation, and of the next one, too"
        reply = front.client().completions.create(model="echo", prompt=prompt, max_tokens=1, extra_body=more)
        assert reply.usage is not None
        assert reply.usage.prompt_tokens_details is not None
        return reply.usage.prompt_tokens_details.cached_tokens or 0

    before = front.metric("graphpod_prefix_cache_hit_tokens_total")
    assert cached(cache_salt="a") == 0
    found = cached(cache_salt="a")
    assert found > 32
    assert cached(cache_salt="b") == 0
    assert cached(cache_salt="b", priority=-3) == found
    front.eventually("they are counted", lambda: front.metric("graphpod_prefix_cache_hit_tokens_total") > before)
    assert front.metric("graphpod_prefix_cache_hit_tokens_total") - before == 2 * found
    assert front.metric("graphpod_prefix_cache_tokens") >= 2 * found


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
def test_null_content_is_no_text(front: Front, role: str) -> None:
    turns = [{"role": role, "content": None}, {"role": "user", "content": "x"}]
    reply = front.post(CHAT, {"model": "echo", "messages": turns})
    assert (reply.status_code, reply.json()["usage"]["prompt_tokens"]) == (200, 1)
    assert front.post(CHAT, {"model": "echo", "messages": [{"role": "assistant"}, turns[1]]}).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_usage_counts_up_to_the_token_that_completed_a_stop_string(front: Front, stream: bool) -> None:
    """However many tokens came with it."""
    body = {"model": "echo", "prompt": "one two three", "stop": "two", "max_tokens": 500, "ignore_eos": True}
    for _ in range(5):
        if stream:
            more = {"stream": True, "stream_options": {"include_usage": True}}
            *_, last, _done, _nothing = front.post(TEXT, body | more).text.split("\n\n")
            usage = json.loads(last.removeprefix("data: "))["usage"]
        else:
            usage = front.post(TEXT, body).json()["usage"]
        assert (usage["completion_tokens"], usage["total_tokens"]) == (7, 20)


@pytest.mark.parametrize(("path", "body"), [(CHAT, say("abcdef")), (TEXT, {"model": "echo", "prompt": "abcdef"})])
def test_every_event_has_the_counts_so_far_where_they_are_asked_for(
    front: Front, path: str, body: dict[str, Any]
) -> None:
    def usages(**options: bool) -> list[Any]:
        text = front.post(path, body | {"stream": True, "stream_options": options}).text
        return [json.loads(event.removeprefix("data: ")).get("usage") for event in text.split("\n\n")[:-2]]

    continuous = usages(include_usage=True, continuous_usage_stats=True)
    counts = [usage["completion_tokens"] for usage in continuous]
    assert counts == sorted(counts)
    assert counts[-1] == 7
    assert {usage["total_tokens"] - usage["completion_tokens"] for usage in continuous} == {6}
    assert set(map(str, usages(include_usage=True)[:-1])) == {"None"}
    assert set(map(str, usages(include_usage=False, continuous_usage_stats=True))) == {"None"}


def test_token_ids_come_with_the_answer_whole_and_streamed(front: Front) -> None:
    ids = front.post("/tokenize", {"prompt": "né"}).json()["tokens"]
    chat = front.post(CHAT, say("né", return_token_ids=True)).json()
    assert (chat["prompt_token_ids"], chat["choices"][0]["token_ids"]) == (ids, ids)
    text = front.post(TEXT, {"model": "echo", "prompt": ["né", "a"], "return_token_ids": True}).json()
    assert [choice["token_ids"] for choice in text["choices"]] == [ids, text["choices"][1]["prompt_token_ids"]]
    for path, body in ((CHAT, say("né")), (TEXT, {"model": "echo", "prompt": "né"})):
        streamed = front.post(path, body | {"stream": True, "return_token_ids": True}).text.split("\n\n")[:-2]
        events = [json.loads(event.removeprefix("data: ")) for event in streamed]
        prompts = [found for event in events for found in (event, *event["choices"]) if "prompt_token_ids" in found]
        assert [found["prompt_token_ids"] for found in prompts] == [ids]
        assert [id for event in events for id in event["choices"][0].get("token_ids", ())] == ids
        unasked = front.post(path, body).json()["choices"][0]
        assert "token_ids" not in unasked
        assert unasked.get("prompt_token_ids") is None
    stopped = front.post(TEXT, {"model": "echo", "prompt": "abcd", "stop": "bc", "return_token_ids": True}).json()
    assert len(stopped["choices"][0]["token_ids"]) == stopped["usage"]["completion_tokens"] == 3


def test_the_last_message_is_continued(own_front: Callable[..., Front], tmp_path: Path) -> None:
    front = own_front(
        model=write_model(tmp_path / "model", "{% for turn in messages %}[{{ turn.content }}]{% endfor %}")
    )
    answer = front.post(CHAT, say("ab", continue_final_message=True)).json()
    assert answer["choices"][0]["message"]["content"] == "[ab"
    assert front.post(CHAT, say("ab", add_generation_prompt=False)).json()["choices"][0]["message"]["content"] == "[ab]"


def test_a_request_may_leave_the_model_out(front: Front) -> None:
    """There is one; vLLM's clients rely on that."""
    body = say("hello", max_tokens=5)
    del body["model"]
    answer = front.post(CHAT, body)
    assert (answer.status_code, answer.json()["model"]) == (200, "echo")
    assert front.post(TEXT, {"prompt": "hello", "max_tokens": 5, "model": "other"}).status_code == 404


def test_an_invocation_is_what_its_fields_show(front: Front) -> None:
    chat = front.post("/invocations", say("hello", max_tokens=5)).json()
    assert chat["choices"] == front.post(CHAT, say("hello", max_tokens=5)).json()["choices"]
    text = front.post("/invocations", {"prompt": "hello", "max_tokens": 5}).json()
    assert (text["object"], text["choices"][0]["text"]) == ("text_completion", "hello")
    refused = front.post("/invocations", {"input": "hello"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "missing_required_parameter")
    assert front.post("/invocations", {"messages": []}).json()["error"]["param"] == "messages"


@pytest.mark.parametrize("field", ["json_schema", "guided_json"])
def test_the_schema_false_is_refused_and_true_is_any_json(front: Front, field: str) -> None:
    refused = front.post(TEXT, {"prompt": "hello", "max_tokens": 5, field: False})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_grammar")
    assert front.post(TEXT, {"prompt": "1", "max_tokens": 5, field: True}).status_code == 200
