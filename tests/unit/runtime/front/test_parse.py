"""Bodies that are small in bytes and large in memory: bounded before they are parsed, forgotten once they are used."""

import asyncio
import json
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from graphpod_runtime.front.openai import fields, invocations, parse
from graphpod_runtime.front.openai.chat import chat_prompt
from graphpod_runtime.front.openai.parse import LARGE_BODY, MAX_ITEMS, MAX_NODES, Parser, parsed
from graphpod_runtime.front.openai.request import ChatRequest, CompletionRequest
from graphpod_runtime.front.openai.service import LONG_TEXT, TOKENIZER_THREADS, Service
from graphpod_runtime.front.requests.admission import Admission
from graphpod_runtime.front.requests.errors import ApiError
from graphpod_runtime.front.text.turn.family import Family

HEAD = b'{"model":"m","messages":[{"role":"user","content":"x"}],'


def many(items: bytes, count: int) -> bytes:
    """So many of them, with commas between."""
    return b",".join([items] * count)


COSTLY = {
    "lists": b'{"model":"m","prompt":[' + many(b"[1]", MAX_NODES) + b"]}",
    "objects in a field that is not read": HEAD + b'"metadata":[' + many(b"{}", MAX_NODES) + b"]}",
    "names of fields": HEAD + many(b'"a":1', MAX_NODES) + b"}",
    "names with escapes": HEAD + many(b'"a\\\\\\"":1', MAX_NODES) + b"}",
    "strings": HEAD + b'"stop":[' + many(b'""', MAX_NODES) + b"]}",
    "nested lists": HEAD + b'"metadata":' + b"[" * MAX_NODES + b"]" * MAX_NODES + b"}",
    "numbers": b'{"model":"m","prompt":[' + many(b"1", MAX_ITEMS + 2) + b"]}",
}


@pytest.mark.parametrize("body", COSTLY.values(), ids=COSTLY)
def test_a_body_of_too_many_values_is_refused_before_it_is_parsed(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse.json, "loads", lambda data: pytest.fail("it was parsed"))
    with pytest.raises(ApiError) as caught:
        parsed(body, ChatRequest)
    error = caught.value
    assert (error.status, error.code) == (413, "request_too_large")
    assert "holds more than" in error.message


@pytest.mark.parametrize("text", ['{"a": [1, 2]}, ' * 100_000, '\\",[{' * 300_000, ",\n" * (MAX_ITEMS + 1)])
def test_a_text_full_of_quotes_brackets_and_commas_is_one_value(text: str) -> None:
    body = json.dumps({"model": "m", "prompt": text}).encode()
    assert parsed(body, CompletionRequest).prompt == text


def test_half_a_surrogate_pair_in_a_field_that_is_not_built_is_no_failure_of_the_server() -> None:
    body = parsed(b'{"model":"m","prompt":"a","suffix":"\\ud800b"}', CompletionRequest)
    with pytest.raises(ApiError) as caught:
        body.take_ignored()
    error = json.loads(caught.value.encoded())["error"]
    assert (caught.value.status, error["param"]) == (400, "suffix")
    assert error["message"].startswith('suffix "?b" is not built')


def test_as_many_token_ids_as_a_context_has_are_taken() -> None:
    body = b'{"model":"m","prompt":[' + many(b"12345", 600_000) + b"]}"
    assert parsed(body, CompletionRequest).prompt == [12345] * 600_000


def test_what_a_client_has_sent_is_read_by_one_decoder_whose_floats_are_pythons() -> None:
    """Stored items and turns of responses, too: msgspec's own floats would take seconds of a list of 1e308."""
    front = Path(parse.__file__).parents[1]
    reads = re.compile(r"json\.(decode|Decoder)\(")
    assert [file for file in front.rglob("*.py") if reads.search(file.read_text())] == [Path(parse.__file__)]
    assert parse.decoder.float_hook is float
    assert parse.decoder.decode(b"[1e308, 0.1, 1e999]") == [1e308, 0.1, float("inf")]


@pytest.mark.parametrize(
    ("content_type", "taken"),
    [("application/json", True), ("Application/JSON; charset=utf-8", True), ("application/vnd.api+json", True),
     ("", False), ("text/json", False), ("application/x-www-form-urlencoded", False)],
)  # fmt: skip
def test_the_content_type_decides(content_type: str, taken: bool) -> None:
    assert parse._says_json(content_type) == taken


LARGE = "x" * LARGE_BODY


@pytest.mark.parametrize("body", [{"messages": [{"role": "user", "content": LARGE}]}, {"prompt": LARGE}])
def test_a_large_body_of_either_api_is_checked_off_the_loop(monkeypatch: pytest.MonkeyPatch, body: Any) -> None:
    parser, checked = Parser(), list[str]()

    def valid(value: object, model: type[Any]) -> Any:
        checked.append(threading.current_thread().name)
        return parse.valid(value, model)

    async def reached(service: Any, request: Any, made: Any) -> Any:
        return made

    monkeypatch.setattr(invocations, "valid", valid)
    monkeypatch.setattr(invocations, "chat", reached)
    monkeypatch.setattr(invocations, "completions", reached)
    data = json.dumps(body).encode()

    async def receive() -> Any:
        return {"type": "http.request", "body": data, "more_body": False}

    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    request = Request({"type": "http", "headers": headers}, receive)
    service: Any = None
    asyncio.run(invocations.invocations(service, request, parser))
    assert checked == ["large bodies_0"]


@pytest.mark.parametrize(("size", "thread"), [(LARGE_BODY - 1, "MainThread"), (LARGE_BODY, "large bodies_0")])
def test_bodies_are_parsed_off_the_loop_from_a_size_on(monkeypatch: pytest.MonkeyPatch, size: int, thread: str) -> None:
    data, threads = b'{"prompt": "a"}'.ljust(size), list[str]()
    own = parse.valid

    def valid(value: object, model: type[CompletionRequest]) -> CompletionRequest:
        threads.append(threading.current_thread().name)
        return own(value, model)

    monkeypatch.setattr(parse, "valid", valid)

    async def receive() -> Any:
        return {"type": "http.request", "body": data, "more_body": False}

    request = Request({"type": "http", "headers": [(b"content-type", b"application/json")]}, receive)
    assert asyncio.run(Parser().read(request, CompletionRequest)).prompt == "a"
    assert threads == [thread]


def test_large_bodies_go_one_at_a_time_and_the_loop_runs_meanwhile() -> None:
    async def run() -> None:
        parser, loop, order = Parser(), asyncio.get_running_loop(), list[str]()
        begun, goes_on = asyncio.Event(), threading.Event()

        def first() -> None:
            order.append("first")
            loop.call_soon_threadsafe(begun.set)
            assert goes_on.wait(30)
            order.append("first ends")

        waiting = [
            asyncio.create_task(parser.apart(LARGE_BODY, first)),
            asyncio.create_task(parser.apart(LARGE_BODY, lambda: order.append("second"))),
        ]
        await begun.wait()
        await parser.apart(10, lambda: order.append("small"))
        goes_on.set()
        await asyncio.gather(*waiting)
        assert order == ["first", "small", "first ends", "second"]

    asyncio.run(run())


def test_of_a_huge_value_a_bounded_part_is_looked_at() -> None:
    class Counted(list[Any]):
        seen = 0

        def __iter__(self) -> Any:
            for one in super().__iter__():
                Counted.seen += 1
                yield one

    huge = {"a": Counted([1, "xx", {"b": [2]}] * 100_000)}
    assert fields.takes_more(huge, 1000)
    assert Counted.seen < 1000
    assert not fields.takes_more({"a": ["x" * 900, {"b": None}]}, 1000)
    assert fields.takes_more({"a": ["x" * 1000]}, 1000)


class Asked:
    """The service as far as a prompt needs it."""

    tokenizer, family = SimpleNamespace(template=None), Family()

    async def tokenized(self, work: Any, characters: int, param: str, **more: Any) -> list[int]:
        return [characters]


def test_a_short_text_does_not_wait_for_long_ones() -> None:
    async def run() -> None:
        status: Any = SimpleNamespace(context_tokens=10, open_tokens=1_000_000)
        parts: Any = SimpleNamespace()
        service = Service(status, parts, parts, parts, Admission(0), parts, parts, Family())
        may_end = threading.Event()
        long = [
            asyncio.create_task(service.tokenized(lambda limit: may_end.wait(60), LONG_TEXT + 1, "prompt"))
            for _ in range(2 * TOKENIZER_THREADS)
        ]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(service.tokenized(lambda limit: limit, LONG_TEXT, "prompt"), 60) == 9
        may_end.set()
        assert await asyncio.gather(*long) == [True] * len(long)

    asyncio.run(run())


def test_nothing_of_a_conversation_is_kept_once_it_is_tokens() -> None:
    """An answer may take minutes; sixteen bodies of four megabytes are a gigabyte of objects."""
    body = parsed(HEAD + b'"metadata":{"a":"b"},"user":"u"}', ChatRequest)
    body.take_ignored()
    assert asyncio.run(chat_prompt(Asked(), body)) == [1]  # type: ignore[arg-type]
    assert (body.messages, body.model_extra, body.metadata, body.user) == ([], {}, None, None)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": [1, -2, 3.5, 1e5, true, null, "é\\n"], "b": {}}', '{"a": 1, "a": 2}', "123456789012345678901234567890",
        "-9223372036854775809", "0.1", "-0.0", "1e400", "NaN", "[Infinity]", '"\\ud800"', '"\\ud83d\\ude00"', "[1,]",
        "01", "", '"\x01"', "\ufeff{}", "{} {}",
    ],
)  # fmt: skip
def test_the_fast_reader_reads_as_python_does(text: str) -> None:
    def read(how: Any) -> str:
        try:
            return repr(how(text.encode()))
        except ValueError as error:
            return f"{type(error).__name__}: {error}"

    assert read(parse._read) == read(json.loads)
