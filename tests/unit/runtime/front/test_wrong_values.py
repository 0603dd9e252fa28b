"""Fields with a wrong value: each is named, with what it may be."""

from typing import Any, get_args

import pytest

from graphpod_runtime.front.requests.errors import Code

from .conftest import Front
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
        (TEXT, {"model": "echo", "prompt": [1.0, 2]}, 400, "prompt[0]", "valid integer"),
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
