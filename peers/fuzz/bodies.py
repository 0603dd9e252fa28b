"""Bodies drawn by seed: a valid one of each endpoint, changed in its fields, its values or its bytes."""

import copy
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

TURN = {"role": "user", "content": "hello there"}
TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
}
USED = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": "b"}}]}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "c"}]}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "properties": {}}}}
VALID: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": [{"role": "system", "content": "be brief"}, TURN], "max_tokens": 2, "temperature": 0.5, "seed": 1,
        "stop": ["x"], "logprobs": True, "top_logprobs": 2, "n": 1, "tools": [TOOL], "tool_choice": "auto",
        "response_format": {"type": "text"}, "chat_template_kwargs": {"a": 1}, "logit_bias": {"5": 1},
    },
    "/v1/completions": {
        "prompt": "once upon", "max_tokens": 2, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "echo": True, "logprobs": 1,
        "stop_token_ids": [3], "presence_penalty": 0.1, "repetition_penalty": 1.1, "min_tokens": 1, "n": 1,
        "response_format": SCHEMA, "cache_salt": "s", "priority": 1, "prompt_logprobs": 1, "bad_words": ["a"],
    },
    "/v1/responses": {
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        "max_output_tokens": 2, "temperature": 0, "store": False, "instructions": "be brief", "metadata": {"a": "b"},
        "text": {"format": {"type": "text"}}, "tools": [{"type": "function", "name": "f"}],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
    },
    "/v1/messages": {
        "messages": [TURN, USED, RESULT], "max_tokens": 2, "system": "be brief", "temperature": 0,
        "stop_sequences": ["x"], "tools": [{"name": "f", "input_schema": {"type": "object"}}],
    },
    "/v1/messages/count_tokens": {"messages": [TURN], "system": "be brief"},
    "/tokenize": {"prompt": "some text", "add_special_tokens": True, "return_token_strs": True},
    "/detokenize": {"tokens": [1, 2, 3]},
}  # fmt: skip
"""By endpoint, less the model's name."""
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**400, 0.5, -0.0, 1e308, "", "x", "\x00", "😀", "\ud83d",
    "a" * 3000, [], {}, [[]], [None], {"": ""}, {"a": {"b": {"c": []}}}, ["a"] * 300, [1] * 3000, "<|im_end|>", "auto",
    {"type": "object"}, [{"type": "text", "text": "a"}], [{"type": "image_url", "image_url": {"url": "x"}}],
    ["\ud83d"], {"\ud83d": 1}, {"type": "\ud83d"}, {"type": ["x"]}, {"type": "function", "name": ["x"]},
)  # fmt: skip
"""Values that a field seldom expects."""
HEADERS: tuple[dict[str, str], ...] = (
    {"content-type": "application/json"},
    {"content-type": "application/json; charset=utf-8", "x-request-id": "a\tb"},
    {"content-type": "text/plain"},
    {"content-type": "application/json", "content-encoding": "gzip"},
    {"content-type": "application/json", "traceparent": "00-zz", "accept": "text/event-stream"},
    {},
)
USUAL = 9
"""Of ten bodies so many have the usual header."""
DEPTH = 4000


@dataclass(frozen=True, slots=True)
class Drawn:
    """A request."""

    path: str
    headers: dict[str, str]
    body: bytes


def drawn(seed: int, count: int, model: str) -> Iterator[Drawn]:
    """So many requests. The same seed gives the same ones."""
    source = random.Random(seed)
    paths = list(VALID)
    for _ in range(count):
        path = source.choice(paths)
        body = copy.deepcopy(VALID[path]) | {"model": model}
        for _ in range(source.choice((0, 1, 1, 2, 4))):
            _change(body, source)
        if source.random() < 0.3:
            body["stream"] = True
        text = json.dumps(body, allow_nan=True).encode()
        headers = HEADERS[0] if source.randrange(10) < USUAL else source.choice(HEADERS)
        yield Drawn(path, dict(headers), _bytes(text, source) if source.random() < 0.25 else text)


def _change(body: dict[str, Any], source: random.Random) -> None:
    """One field less, one more, or another value somewhere."""
    places: list[tuple[Any, Any]] = []
    _collect(body, places)
    if not places:  # every field has been taken away
        body["extra"] = source.choice(ODD)
        return
    holder, key = source.choice(places)
    how = source.random()
    if how < 0.2:
        del holder[key]
    elif how < 0.3 and isinstance(holder, dict):
        holder[source.choice(("extra", "n", "logit_bias", "tools", "response_format", "stream_options", "\ud83d"))] = (
            source.choice(ODD)
        )
    elif how < 0.35:
        holder[key] = float(source.choice(("nan", "inf", "-inf")))
    else:
        holder[key] = copy.deepcopy(source.choice(ODD))


def _collect(value: Any, places: list[tuple[Any, Any]]) -> None:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        places.append((value, key))
        _collect(inner, places)


def _bytes(text: bytes, source: random.Random) -> bytes:
    at = source.randrange(len(text))
    match source.randrange(6):
        case 0:
            return text[:at]
        case 1:
            return text[:at] + bytes([source.randrange(256)]) + text[at + 1 :]
        case 2:
            return text[:at] + text
        case 3:
            return b"[" * DEPTH + text
        case 4:
            return b"\xef\xbb\xbf" + text
        case _:
            return text.replace(b'"', b"'")
