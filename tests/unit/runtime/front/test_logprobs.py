"""Log-probabilities over HTTP, read by OpenAI's own client. Of token t the scripted engine says -1 - t; the byte-level
tokenizer's ids follow its alphabet, so that a token's id is known by its letter."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from graphpod_policy import ServingConfig
from graphpod_runtime.front.openai.sampling.choices import MAX_REPEATED
from graphpod_runtime.front.openai.sampling.sampling_fields import MAX_CHOICES
from graphpod_runtime.front.openai.service import MAX_NAMED
from graphpod_runtime.front.requests.admission import Admission, Full
from graphpod_runtime.front.text.tokenizer import BYTES, Tokenizer

from .conftest import Front, byte_tokenizer, write_model
from .test_openai import CHAT, TEXT, say

IDS = byte_tokenizer().get_vocab()


def value(letter: str) -> float:
    """Of the token of one letter."""
    return -1.0 - IDS[letter]


FIRST, SECOND = (byte_tokenizer().id_to_token(id) for id in (0, 1))


def test_a_chat_tells_each_token_with_its_alternatives(front: Front) -> None:
    reply = front.client().chat.completions.create(**say("hi"), logprobs=True, top_logprobs=2)
    (choice,) = reply.choices
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    told = [(one.token, one.logprob, one.bytes) for one in choice.logprobs.content]
    assert told == [("h", value("h"), [104]), ("i", value("i"), [105])]
    for one in choice.logprobs.content:
        assert [(top.token, top.logprob) for top in one.top_logprobs] == [(FIRST, -1.0), (SECOND, -2.0)]


def test_alternatives_by_id_hold_the_chosen_token_once(front: Front) -> None:
    for said, expected in (("h", ["h", FIRST]), (FIRST, [FIRST])):
        reply = front.client().chat.completions.create(
            **say(said), logprobs=True, extra_body={"logprob_token_ids": [0]}
        )
        assert reply.choices[0].logprobs is not None
        assert reply.choices[0].logprobs.content is not None
        (one,) = reply.choices[0].logprobs.content
        assert [top.token for top in one.top_logprobs] == expected


def test_nothing_is_told_unless_asked(front: Front) -> None:
    for body in (say("hi"), say("hi", logprobs=False), say("hi", logprobs=None, top_logprobs=0)):
        assert front.post(CHAT, body).json()["choices"][0]["logprobs"] is None
    for logprobs in (None, False):
        reply = front.post(TEXT, {"model": "echo", "prompt": "hi", "logprobs": logprobs})
        assert reply.json()["choices"][0]["logprobs"] is None


def test_a_streamed_chat_tells_the_same_as_a_whole_one(front: Front) -> None:
    request = say("héllo 😀", logprobs=True, top_logprobs=1)
    whole = front.post(CHAT, request).json()["choices"][0]["logprobs"]["content"]
    assert [bytes(one["bytes"]) for one in whole] == [bytes([byte]) for byte in "héllo 😀".encode()]
    lines = front.post(CHAT, request | {"stream": True}).text.splitlines()
    chunks = [json.loads(line[6:])["choices"][0] for line in lines if line.startswith("data: {")]
    assert chunks[0]["logprobs"] is None  # the role
    assert [one for chunk in chunks[1:] for one in chunk["logprobs"]["content"]] == whole
    for chunk in chunks[1:]:
        text = b"".join(bytes(one["bytes"]) for one in chunk["logprobs"]["content"])
        assert chunk["delta"].get("content", "") == text.decode()


def test_a_completion_tells_four_lists(front: Front) -> None:
    reply = front.client().completions.create(model="echo", prompt="hé", logprobs=1)
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens == ["h", "bytes:\\xc3", "bytes:\\xa9"]
    letters = {byte: letter for letter, byte in BYTES.items()}
    assert logprobs.token_logprobs == [value("h"), value(letters[0xC3]), value(letters[0xA9])]
    assert logprobs.top_logprobs is not None
    assert logprobs.top_logprobs[0] == {FIRST: -1.0, "h": value("h")}
    assert logprobs.text_offset == [0, 1, 1]


def test_without_alternatives_the_chosen_token_stands_alone(front: Front) -> None:
    reply = front.post(TEXT, {"model": "echo", "prompt": "hi", "logprobs": 0}).json()["choices"][0]
    assert reply["logprobs"]["token_logprobs"] == [value("h"), value("i")]
    assert reply["logprobs"]["top_logprobs"] == [{"h": value("h")}, {"i": value("i")}]


@pytest.mark.parametrize("stream", [False, True])
def test_echo_tells_the_prompt_first_and_its_first_token_has_no_probability(front: Front, stream: bool) -> None:
    request = {"model": "echo", "prompt": ["abc", "d"], "echo": True, "logprobs": 0, "max_tokens": 2}
    if stream:
        lines = front.post(TEXT, request | {"stream": True}).text.splitlines()
        pieces = [json.loads(line[6:])["choices"][0] for line in lines if line.startswith("data: {")]
        told = [_joined([piece for piece in pieces if piece["index"] == index]) for index in (0, 1)]
    else:
        told = [_joined([choice]) for choice in front.post(TEXT, request).json()["choices"]]
    assert told[0] == ("abcab", [*"abcab"], [None, *map(value, "bcab")], [0, 1, 2, 3, 4])
    assert told[1][:3] == ("dd", ["d", "d"], [None, value("d")])


def _joined(pieces: list[dict[str, Any]]) -> tuple[str, list[str], list[float | None], list[int]]:
    lists = [piece["logprobs"] for piece in pieces]
    return (
        "".join(piece["text"] for piece in pieces),
        [token for one in lists for token in one["tokens"]],
        [logprob for one in lists for logprob in one["token_logprobs"]],
        [offset for one in lists for offset in one["text_offset"]],
    )


def test_log_probabilities_of_a_prompt_are_bounded_at_the_door(front: Front) -> None:
    rows = MAX_NAMED // 21
    request = {"model": "echo", "echo": True, "logprobs": 20, "max_tokens": 1}
    refused = front.post(TEXT, request | {"prompt": ["x" * rows, "x"]})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "logprobs"
    assert f"names {21 * (rows + 1)} tokens" in refused.json()["error"]["message"]
    assert f"at most {MAX_NAMED} fit one request" in refused.json()["error"]["message"]
    told = front.post(TEXT, request | {"prompt": "x" * rows}).json()["choices"][0]["logprobs"]
    assert len(told["tokens"]) == rows + 1
    assert front.post(TEXT, request | {"prompt": "x" * 30_000, "echo": False}).status_code == 200


def test_log_probabilities_of_a_prompt_count_for_each_answer_that_carries_them(front: Front) -> None:
    rows = MAX_NAMED // 21 // 4
    request = {"model": "echo", "prompt": "x" * rows, "prompt_logprobs": 20, "max_tokens": 1}
    refused = front.post(TEXT, request | {"n": 5})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "prompt_logprobs")
    assert f"names {21 * 5 * rows} tokens" in refused.json()["error"]["message"]
    choices = front.post(TEXT, request | {"n": 4}).json()["choices"]
    assert [len(choice["prompt_logprobs"]) for choice in choices] == [rows] * 4
    assert choices[0]["prompt_logprobs"] == choices[3]["prompt_logprobs"]


def test_what_several_answers_repeat_of_a_prompt_is_bounded(own_front: Callable[..., Front]) -> None:
    front = own_front(serving=ServingConfig(max_queue=MAX_CHOICES))
    size = MAX_REPEATED // MAX_CHOICES + 1
    bodies: list[tuple[str, str, dict[str, Any]]] = [
        (TEXT, "echo", {"prompt": [1] * size}),
        (TEXT, "return_token_ids", {"prompt": [1] * size}),
        (CHAT, "echo", {"messages": [{"role": "assistant", "content": "b" * size}]}),
    ]
    for path, field, body in bodies:
        asked = body | {field: True, "max_tokens": 1}
        refused = front.post(path, asked | {"n": MAX_CHOICES})
        error = refused.json()["error"]
        assert (refused.status_code, error["param"]) == (400, "n"), error
        assert f"{field} has each of {MAX_CHOICES} answers repeat {size} tokens" in error["message"]
        assert front.post(path, asked | {"n": 2}).status_code == 200


def test_log_probabilities_of_all_open_prompts_together_are_bounded() -> None:
    admission = Admission(max_named=100)
    with admission.prompt_logprobs(60):
        with pytest.raises(Full, match="of 60 prompt tokens, of 100 in all"), admission.prompt_logprobs(41):
            raise AssertionError("it was let in")
        with admission.prompt_logprobs(40):
            assert admission.named == 100
    assert admission.named == 0


def test_echo_without_log_probabilities_is_text_alone(front: Front) -> None:
    reply = front.post(TEXT, {"model": "echo", "prompt": "abc", "echo": True, "max_tokens": 1}).json()["choices"][0]
    assert (reply["text"], reply["logprobs"]) == ("abca", None)


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_behind_a_stop_string_are_not_told(front: Front, stream: bool) -> None:
    request = say("one two three", stop="o th", logprobs=True)
    if stream:
        lines = front.post(CHAT, request | {"stream": True}).text.splitlines()
        pieces = [json.loads(line[6:])["choices"][0] for line in lines if line.startswith("data: {")][1:]
        told = [one["token"] for piece in pieces for one in piece["logprobs"]["content"]]
    else:
        told = [one["token"] for one in front.post(CHAT, request).json()["choices"][0]["logprobs"]["content"]]
    assert "".join(told) == "one tw"


def test_bytes_are_told_as_far_as_the_tokenizer_knows_them(tmp_path: Any) -> None:
    tokenizer = Tokenizer(write_model(tmp_path / "model"))
    for text in ("a", " ", "\n"):
        (id,) = tokenizer.encode(text)
        assert (tokenizer.token(id), tokenizer.bytes_of(id)) == (text, text.encode())
    assert [tokenizer.bytes_of(id) for id in tokenizer.encode("é")] == [b"\xc3", b"\xa9"]
    assert tokenizer.bytes_of(256) == b"<end>"


@pytest.mark.parametrize("prompt", ["ab", "a"])
def test_a_prompt_alone_is_scored_without_an_answer(front: Front, prompt: str) -> None:
    before = front.metric("graphpod_generation_tokens_total")
    body = {"model": "echo", "prompt": prompt, "max_tokens": 0, "echo": True, "logprobs": 1}
    reply = front.post(TEXT, body).json()
    (choice,) = reply["choices"]
    assert (choice["text"], choice["finish_reason"]) == (prompt, "length")
    assert choice["logprobs"]["tokens"] == list(prompt)
    assert choice["logprobs"]["token_logprobs"] == [None, *map(value, prompt[1:])]
    assert reply["usage"]["completion_tokens"] == 0
    assert front.metric("graphpod_generation_tokens_total") == before


def test_several_prompts_alone_come_back_as_a_stream(front: Front) -> None:
    body = {"model": "echo", "prompt": ["ab", "c"], "max_tokens": 0, "echo": True, "stream": True}
    lines = front.post(TEXT, body).text.splitlines()
    chunks = [json.loads(line[6:])["choices"][0] for line in lines if line.startswith("data: {")]
    texts = ["".join(one["text"] for one in chunks if one["index"] == index) for index in (0, 1)]
    assert texts == ["ab", "c"]
    assert [one["finish_reason"] for one in chunks if one["finish_reason"]] == ["length", "length"]


def test_a_prompt_alone_is_scored_whatever_token_would_follow(front: Front) -> None:
    body = {"model": "echo", "prompt": [64, 256], "max_tokens": 0, "echo": True, "logprobs": 0, "stop_token_ids": [64]}
    (choice,) = front.post(TEXT, body).json()["choices"]
    assert (len(choice["logprobs"]["tokens"]), choice["finish_reason"]) == (2, "length")
