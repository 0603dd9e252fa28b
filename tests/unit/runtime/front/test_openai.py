"""The OpenAI API over the wire, with OpenAI's own client where it can send the request."""

import gzip
import json
from typing import Any

import httpx2
import openai
import pytest
from pydantic import ValidationError

from graphpod_runtime.front.incoming import BODY_LIMIT
from graphpod_runtime.front.openai.request import CompletionRequest, Message
from graphpod_runtime.front.requests.errors import ApiError
from graphpod_runtime.front.text.tokenizer import REPLACEMENT

from .conftest import Front

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
    extras = {"user": "u", "metadata": {}} | neutral
    assert front.post(CHAT, say("ok", seed=7, top_p=0.5, **extras)).status_code == 200


def test_an_id_of_the_model_that_the_tokenizer_does_not_have_is_a_token_like_others(front: Front) -> None:
    """Tokenizers have gaps, and models more rows than tokens: what counts is the model's embedding."""
    assert front.get("/warmup").json()["vocabulary"] == 260
    reply = front.post(TEXT, {"model": "echo", "prompt": [64, 259], "max_tokens": 2})
    assert reply.status_code == 200
    assert reply.json()["usage"] == {
        "prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4, "prompt_tokens_details": {"cached_tokens": 0},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value"),
    [("n", 2), ("best_of", 2), ("logit_bias", {"5": 1}), ("frequency_penalty", 0.5),
     ("response_format", {"type": "json_object"}), ("tools", [{"type": "function"}]), ("reasoning_effort", "low")],
)  # fmt: skip
def test_a_field_that_is_not_built_is_refused_by_name(front: Front, field: str, value: Any) -> None:
    response = front.post(CHAT, say("x", **{field: value}))
    error = error_of(response)
    assert (response.status_code, error["param"], error["code"]) == (400, field, "unsupported_parameter")
    assert field in error["message"]


@pytest.mark.parametrize(
    ("path", "body", "status", "param", "words"),
    [
        (CHAT, b'{"model": "echo", ', 400, None, "not JSON"),
        (CHAT, [1], 400, None, "JSON object"),
        (CHAT, {"model": "echo"}, 400, "messages", "required"),
        (CHAT, {"model": "echo", "messages": []}, 400, "messages", "at least 1"),
        (CHAT, {"model": "echo", "messages": [{"role": "robot", "content": "x"}]}, 400, "messages.0.role", "user"),
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
        (CHAT, say("x", stop=["a" * 100_000] * 16), 400, "stop.0", "at most 1024 characters"),
        (CHAT, say("x", stop=["a"] * 17), 400, "stop", "at most 16 items"),
        (
            CHAT,
            {"model": "echo", "messages": [{"role": "user", "content": "x"}] * 8193},
            400,
            "messages",
            "at most 8192",
        ),
        (CHAT, {"model": "echo", "messages": [{"role": "user", "content": None}]}, 400, "messages[0].content", "null"),
        (CHAT, {"model": "echo", "messages": [{"role": "tool"}]}, 400, "messages[0].content", "missing"),
        (
            CHAT,
            say("x", chat_template_kwargs={"a": 1}),
            400,
            "chat_template_kwargs",
            "does not read 'a'; it reads: none",
        ),
        (CHAT, say("x", chat_template_kwargs={"a": "x" * 20_000}), 400, "chat_template_kwargs", "at most 16384"),
        (CHAT, say("x", chat_template_kwargs={"a": NESTED}), 400, "chat_template_kwargs", "16 levels"),
        (CHAT, say("x", chat_template_kwargs={"a": float("nan")}), 400, "chat_template_kwargs", "not JSON"),
        (CHAT, say("x", logit_bias=NESTED), 400, "logit_bias", "logit_bias=[1 items] is not supported"),
        (CHAT, say("x", max_tokens=0), 400, "max_tokens", "greater than or equal to 1"),
        (TEXT, {"model": "echo", "prompt": "x", "max_tokens": 0}, 400, "max_tokens", "would be empty; ask for 1"),
        (TEXT, {"model": "echo", "prompt": "x", "max_tokens": -1}, 400, "max_tokens", "greater than or equal to 0"),
        (TEXT, {"model": "echo", "prompt": [1] * 200_000, "max_tokens": 0, "echo": True}, 400, "prompt", "by 1"),
        (CHAT, say("x", n="1"), 400, "n", 'n must be a number, not "1"'),
        (CHAT, say("x", n=True), 400, "n", "n must be a number, not true"),
        (CHAT, say("x", presence_penalty="0"), 400, "presence_penalty", 'must be a number, not "0"'),
        (TEXT, {"model": "echo", "prompt": "x", "max_tokens": 10**4300 - 1}, 400, "max_tokens", "less than"),
        (CHAT, say("x", stop_token_ids=[5, 2**70]), 400, "stop_token_ids.1", "less than 2147483648"),
        (CHAT, say("x", stop_token_ids=[-1]), 400, "stop_token_ids.0", "greater than or equal to 0"),
        (CHAT, say("x", stop_token_ids=[1] * 17), 400, "stop_token_ids", "at most 16 items"),
        (CHAT, say("x", stop=[""]), 400, "stop.0", "at least 1 character"),
        (CHAT, say("x", stream_options={"include_usage": True}), 400, "stream_options", "stream is true"),
        (CHAT, say("x", top_logprobs=2), 400, "top_logprobs", "only allowed when logprobs is true"),
        (CHAT, say("x", logprobs=True, top_logprobs=21), 400, "top_logprobs", "less than or equal to 20"),
        (CHAT, say("x", logprobs=1), 400, "logprobs", "boolean"),
        (TEXT, {"model": "echo", "prompt": "x", "logprobs": 21}, 400, "logprobs", "less than or equal to 20"),
        (TEXT, {"model": "echo", "prompt": "x", "logprobs": True}, 400, "logprobs", "valid integer"),
        (TEXT, {"model": "echo", "prompt": "x", "logprobs": -1}, 400, "logprobs", "greater than or equal to 0"),
        (CHAT, say("x", brand_new=1), 400, "brand_new", "Unrecognized"),
        (CHAT, say("x", model="gpt-5"), 404, "model", "'gpt-5' does not exist here; this service serves 'echo'"),
        (TEXT, {"model": "echo", "prompt": ""}, 400, "prompt", "empty"),
        (TEXT, {"model": "echo", "prompt": []}, 400, "prompt", "empty list"),
        (TEXT, {"model": "echo", "prompt": [999]}, 400, "prompt", "0 to 259"),
        (TEXT, {"model": "echo", "prompt": [260]}, 400, "prompt", "token id 260 at position 0"),
        (TEXT, {"model": "echo", "prompt": [1, -1]}, 400, "prompt", "token id -1 at position 1"),
        (TEXT, {"model": "echo", "prompt": [[1], [999]]}, 400, "prompt", "token id 999"),
        (TEXT, {"model": "echo", "prompt": [1, None]}, 400, "prompt.1", "valid integer"),
        (TEXT, {"model": "echo", "prompt": [True]}, 400, "prompt.0", "valid"),
        (TEXT, {"model": "echo", "prompt": "a\ud800"}, 400, "prompt", "surrogates not allowed"),
        (TEXT, {"model": "echo", "prompt": ["a"] * 9}, 400, "prompt", "9 prompts; this service takes 8 at a time"),
        (CHAT, say("a\ud800"), 400, "messages.0.content", "surrogates not allowed"),
        (CHAT, b'{"model": "\xff"}', 400, None, "byte 11 is not UTF-8"),
        (CHAT, b"[" * 60_000, 400, None, "nested too deeply"),
        (CHAT, b'{"model": ' + b"9" * 5000 + b"}", 400, None, "an integer of too many digits"),
        (CHAT, b"", 400, None, "not JSON"),
        ("/v1/embeddings", {}, 404, None, "/v1/embeddings"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(
    front: Front, path: str, body: Any, status: int, param: str | None, words: str
) -> None:
    response = front.post(path, body)
    error = error_of(response)
    assert (response.status_code, error["param"], error["type"]) == (status, param, "invalid_request_error")
    assert words in error["message"]


def test_a_prompt_longer_than_the_model_is_refused_with_both_numbers(front: Front) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        front.client().chat.completions.create(**say("x" * 200_000), max_tokens=5)
    error = caught.value.body
    assert isinstance(error, dict)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
    for number in ("200000 tokens", "200005 tokens", "5 in the completion", "shorten the messages by 1"):
        assert number in error["message"]


def test_an_answer_longer_than_the_model_blames_its_own_field(front: Front) -> None:
    error = error_of(front.post(CHAT, say("hi", max_tokens=10_000_000)))
    assert (error["code"], error["param"]) == ("context_length_exceeded", "max_tokens")
    assert "ask for at most 199998 tokens, or leave max_tokens out" in error["message"]


def test_what_nobody_asked_for_is_cut_to_what_is_left(front: Front) -> None:
    reply = front.post(TEXT, {"model": "echo", "prompt": "x" * 199_995, "ignore_eos": True}).json()
    assert reply["usage"]["completion_tokens"] == 5  # of the sixteen that are the default


def test_a_refusal_repeats_no_more_than_the_beginning_of_what_was_sent(front: Front) -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": "x" * 5000}}] * 50
    bodies: list[dict[str, Any]] = [
        say("x", tools=tools),
        say("x", **{"y" * 100_000: 1}),
        say("x", reasoning_effort="z" * 100_000),
        say("x", n=10**4000),
        say("x", model="m" * 100_000),
        {"model": "echo", "messages": [{"role": "user", "content": "x", "k" * 100_000: 1}]},
        {"model": "echo", "messages": [{"role": "user", "content": [{"type": "text", "text": "", "k" * 100_000: 1}]}]},
    ]
    for body in bodies:
        response = front.post(CHAT, body)
        assert (response.status_code in (400, 404), len(response.content) < 500) == (True, True), response.text[:900]


def test_a_body_beyond_the_limit_is_refused_whether_it_says_its_length_or_not(front: Front) -> None:
    body = json.dumps(say("x" * BODY_LIMIT)).encode()
    declared = front.post(CHAT, body)
    assert (declared.status_code, error_of(declared)["code"]) == (413, "request_too_large")
    pieces = (body[at : at + 65536] for at in range(0, len(body), 65536))
    chunked = httpx2.post(front.http + CHAT, content=pieces, headers={"content-type": "application/json"})
    assert chunked.status_code == 413
    assert f"larger than {BODY_LIMIT} bytes" in error_of(chunked)["message"]
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


@pytest.mark.parametrize("options", [{"include_usage": None}, {"include_obfuscation": False}])
def test_options_of_a_stream_that_change_nothing_are_accepted(front: Front, options: dict[str, Any]) -> None:
    assert front.post(CHAT, say("x", stream=True, stream_options=options)).status_code == 200


def test_a_part_that_is_no_text_is_refused(front: Front) -> None:
    content = [{"type": "image_url", "image_url": {"url": "data:,"}}]
    response = front.post(CHAT, {"model": "echo", "messages": [{"role": "user", "content": content}]})
    assert response.status_code == 400
    assert error_of(response)["param"] == "messages.0.content.0.type"


def test_a_speakers_name_reaches_the_template() -> None:
    turn = Message.model_validate({"role": "developer", "content": "a", "name": "bob"})
    assert turn.plain(0) == {"role": "system", "content": "a", "name": "bob"}


def test_text_parts_are_joined_and_a_tool_call_is_refused(front: Front) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    reply = front.post(CHAT, {"model": "echo", "messages": [{"role": "user", "content": parts}]}).json()
    assert reply["choices"][0]["message"]["content"] == "ab"
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turn = {"role": "assistant", "content": None, "tool_calls": [call]}
    error = error_of(front.post(CHAT, {"model": "echo", "messages": [turn]}))
    assert error["param"] == "messages[0].tool_calls"
    assert "its chat template does not write them" in error["message"]


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


@pytest.mark.parametrize(("field", "value"), [("cache_salt", ""), ("cache_salt", "x" * 257), ("priority", "high")])
def test_a_salt_or_priority_that_cannot_be_is_refused(front: Front, field: str, value: object) -> None:
    refused = front.post("/v1/completions", {"model": "echo", "prompt": "a", field: value})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, field)
