"""Streams: what comes together leaves together, and a client that does not read is given up without harm to others."""

import asyncio
import json
import re
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from graphpod_runtime.front.metrics.exporter import FrontMetrics
from graphpod_runtime.front.openai import chunks, stream
from graphpod_runtime.front.openai.chunks import Chunks
from graphpod_runtime.front.openai.reply import TextChoice, TextReply
from graphpod_runtime.front.openai.stream import EventStream
from graphpod_runtime.front.requests import engine_stream
from graphpod_runtime.front.requests.engine_client import EngineClient
from graphpod_runtime.front.requests.engine_stream import Arrived, EngineStream
from graphpod_runtime.front.requests.generation import Generation, Options, Piece
from graphpod_runtime.front.server.connection import ABORT, READ
from graphpod_runtime.front.text.tokenizer import Tokenizer
from graphpod_runtime.wire.messages import Event, Finished, FinishReason, Heartbeat, Logprob, Tokens
from graphpod_runtime.wire.socket import WIRE, EngineEnd

from .conftest import Front, byte_tokenizer, write_model
from .test_openai import CHAT, TEXT, say

IDS = byte_tokenizer().get_vocab()
REQUESTS = "graphpod_requests_total"
NO_ENGINE = (sys.executable, "-c", "import sys; sys.stdin.read()")
OPTIONS = Options((100, 100), 0.0, 1.0, 0, 0.0, (), (), False)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads nothing is given up within a tenth of a second."""
    monkeypatch.setattr(stream, "IDLE_SECONDS", 0.02)
    monkeypatch.setattr(stream, "FAREWELL_SECONDS", 0.05)


def post(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def spelled(text: str) -> list[int]:
    return [IDS[letter] for letter in text]


def test_what_comes_before_a_look_comes_together() -> None:
    async def run() -> dict[int, Arrived]:
        subject = EngineStream(lambda index: None, lambda: None)
        subject.put(0, Tokens("a", [1], [Logprob(1, -1.0)], [Logprob(9, -2.0)]))
        subject.put(1, Tokens("b", [7]))
        subject.put(0, Tokens("a", [2, 3], [Logprob(2, -1.0), Logprob(3, -1.0)]))
        subject.put(0, Finished("a", FinishReason.Length))
        return await subject.next()

    arrived = asyncio.run(run())
    assert (arrived[0].ids, arrived[1].ids) == ([1, 2, 3], [7])
    assert [one.token for one in arrived[0].logprobs] == [1, 2, 3]
    assert [one.token for one in arrived[0].prompt_logprobs] == [9]
    assert (arrived[0].finished, arrived[1].finished) == (Finished("a", FinishReason.Length), None)


@pytest.mark.parametrize(("tokens", "alternatives", "overruns"), [(5, 0, 0), (6, 0, 1), (2, 1, 0), (3, 1, 1)])
def test_what_waits_is_bounded_with_the_alternatives_that_it_names(
    monkeypatch: pytest.MonkeyPatch, tokens: int, alternatives: int, overruns: int
) -> None:
    monkeypatch.setattr(engine_stream, "MOST_WAITING", 5)
    told: list[int] = []
    subject = EngineStream(lambda index: None, lambda: told.append(1))
    top = tuple((id, -1.0) for id in range(alternatives))
    prompt = [Logprob(0, -1.0, top)] * 100  # has a bound of its own
    for number in range(tokens):
        logprobs = [Logprob(number, -1.0, top)] if alternatives else []
        subject.put(0, Tokens("a", [number], logprobs, prompt if number == 0 else []))
    assert len(told) == overruns


class Wired:
    """A generation whose engine is the test, and what its stream sends."""

    def __init__(self, folder: Path, prompts: int = 1, read_seconds: float = 60) -> None:
        self._read_seconds = read_seconds
        tokenizer = Tokenizer(write_model(folder / "model"))
        self.metrics = FrontMetrics("echo")
        self.client = EngineClient(lambda event: None, NO_ENGINE)
        self._running = asyncio.create_task(self.client.run(folder))
        self.engine = EngineEnd(Path(self.client._folder.name), WIRE)
        self.engine.send([Heartbeat(0.0, "Ready")])
        generation = Generation(self.client, tokenizer, self.metrics, [[1]] * prompts, OPTIONS, 0.0)
        self.sent: list[bytes] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self.dropped = asyncio.Event()
        self.until = ExitStack()
        self.until.callback(lambda: self.sent.append(b"<until>"))

        def encode(piece: Piece) -> list[TextReply]:
            return [TextReply("id", 0, "echo", [TextChoice(piece.index, piece.text, piece.finish)])]

        self._stream = EventStream(generation, Chunks(encode, [], list), self.until)

    async def __aenter__(self) -> "Wired":
        scope = {"headers": [], "extensions": {ABORT: {"now": self.dropped.set}, READ: {"seconds": self._read_seconds}}}
        self._answering = asyncio.create_task(self._stream(scope, self._receive, self._send))
        try:
            await self.eventually(lambda: self.client.open > 0)
        except AssertionError:
            await self.__aexit__()  # or what is left in the socket holds the collector of garbage for ever
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._answering.cancel()
        await asyncio.wait((self._answering,))
        self.client.kill()
        await asyncio.wait((self._running,))
        self.engine.close()
        self.client.close()

    async def ended(self) -> None:
        await asyncio.wait_for(asyncio.shield(self._answering), 30)

    async def eventually(self, holds: Callable[[], bool]) -> None:
        for _ in range(6000):
            if holds():
                return
            await asyncio.sleep(0.005)
        raise AssertionError(f"never; sent: {self.sent}")

    def passes(self, *events: Event) -> None:
        """One pass of the engine."""
        self.engine.send(events)

    async def stops_reading(self) -> None:
        """The client reads the first token, and nothing after it."""
        self.passes(Tokens("r0", spelled("a")))
        await self.eventually(lambda: len(self.texts) == 1)
        self.reads.clear()

    async def overruns(self) -> None:
        """Three passes of eight tokens each."""
        for _ in range(3):
            self.passes(Tokens("r0", spelled("b" * 8)))
            await asyncio.sleep(0.02)

    @property
    def texts(self) -> list[list[tuple[int, str]]]:
        """Of each write, its events: choice and text."""
        found = []
        for data in self.sent:
            events = [json.loads(event).get("choices") for event in re.findall(rb"data: (\{.*\})\n\n", data)]
            found.append([(one["index"], one["text"]) for choices in events if choices for one in choices])
        return [texts for texts in found if texts]

    @property
    def reasons(self) -> list[FinishReason]:
        """By which requests have ended."""
        return [reason for reason in FinishReason if self.metrics.value(REQUESTS, finish_reason=reason)]

    async def _receive(self) -> dict[str, Any]:
        await self.dropped.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        await self.reads.wait()
        if not self.sent:
            self.open_at_header = self.client.open
        self.sent.append(message.get("body", b""))


def wired(
    folder: Path, test: Callable[[Wired], Coroutine[Any, Any, None]], prompts: int = 1, read_seconds: float = 60
) -> None:
    async def run() -> None:
        async with Wired(folder, prompts, read_seconds) as subject:
            await test(subject)

    asyncio.run(run())


def test_a_request_is_on_its_way_to_the_engine_before_its_header_goes_out(tmp_path: Path) -> None:
    async def test(subject: Wired) -> None:
        await subject.eventually(lambda: len(subject.sent) == 1)
        assert subject.open_at_header == 1

    wired(tmp_path, test)


def test_a_generation_that_has_begun_and_is_never_read_ends_with_its_request(tmp_path: Path) -> None:
    async def test(subject: Wired) -> None:
        generation = Generation(subject.client, Tokenizer(tmp_path / "model"), subject.metrics, [[1]], OPTIONS, 0.0)
        with ExitStack() as until:
            generation.begin(until)
            generation.begin(until)
            assert subject.client.open == 2
        assert subject.client.open == 1
        assert subject.reasons == [FinishReason.Abort]
        assert subject.metrics.value(REQUESTS) == 1

    wired(tmp_path, test)


def test_several_tokens_of_a_pass_are_one_event(tmp_path: Path) -> None:
    async def test(subject: Wired) -> None:
        subject.passes(Tokens("r0", spelled("ab")), Tokens("r0", spelled("c")))
        await subject.eventually(lambda: len(subject.texts) == 1)
        subject.passes(Tokens("r0", spelled("d")), Finished("r0", FinishReason.Length))
        await subject.ended()
        assert subject.texts == [[(0, "abc")], [(0, "d")]]
        assert subject.metrics.value("graphpod_generation_tokens_total") == 4

    wired(tmp_path, test)


def test_the_choices_of_a_connection_leave_in_one_write(tmp_path: Path) -> None:
    async def test(subject: Wired) -> None:
        subject.passes(Tokens("r0", spelled("a")), Tokens("r1", spelled("b")))
        await subject.eventually(lambda: len(subject.texts) == 1)
        assert subject.texts == [[(0, "a"), (1, "b")]]

    wired(tmp_path, test, prompts=2)


def test_the_text_before_an_error_is_sent_with_it(tmp_path: Path) -> None:
    async def test(subject: Wired) -> None:
        subject.passes(Tokens("r0", spelled("ab")), Finished("r0", FinishReason.Error, "a row that is not finite"))
        await subject.ended()
        assert subject.texts == [[(0, "ab")]]
        assert b"a row that is not finite" in subject.sent[-2] + subject.sent[-1]

    wired(tmp_path, test)


def test_what_comes_while_a_client_does_not_read_comes_together_once_it_does(tmp_path: Path) -> None:
    async def test(subject: Wired) -> None:
        await subject.stops_reading()
        for letter in "bcdef":
            subject.passes(Tokens("r0", spelled(letter)))
            await asyncio.sleep(0.02)
        subject.reads.set()
        await subject.eventually(lambda: sum(len(text) for [(_, text)] in subject.texts) == 6)
        # one write was waiting; all others joined
        assert len(subject.texts) <= 3

    wired(tmp_path, test)


def test_a_client_that_does_not_read_is_given_up_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_stream, "MOST_WAITING", 10)

    async def test(subject: Wired) -> None:
        await subject.stops_reading()
        await subject.overruns()
        await subject.eventually(lambda: subject.client.open == 0)
        assert subject.reasons == [FinishReason.SlowReader]
        assert subject.sent[-1] == b"<until>"  # its place is free before it reads on
        subject.reads.set()
        await subject.ended()
        assert b'"code": "slow_reader"' in subject.sent[-1]
        assert not any(b"[DONE]" in data for data in subject.sent)
        assert not subject.dropped.is_set()

    wired(tmp_path, test)


def test_a_client_that_never_reads_loses_its_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_stream, "MOST_WAITING", 10)
    monkeypatch.setattr(stream, "FAREWELL_SECONDS", 0.05)

    async def test(subject: Wired) -> None:
        await subject.stops_reading()
        await subject.overruns()
        await subject.ended()
        assert subject.dropped.is_set()

    wired(tmp_path, test)


@pytest.mark.usefixtures("impatient")
def test_a_client_that_reads_nothing_of_a_finished_answer_is_given_up(tmp_path: Path) -> None:
    async def test(subject: Wired) -> None:
        await subject.stops_reading()
        subject.passes(Finished("r0", FinishReason.Length))
        await subject.ended()
        assert (subject.sent[-1], subject.dropped.is_set()) == (b"<until>", True)

    wired(tmp_path, test, read_seconds=0.1)


@pytest.mark.usefixtures("impatient")
def test_a_client_that_does_not_read_while_nothing_comes_is_given_up_with_a_reason(tmp_path: Path) -> None:
    async def test(subject: Wired) -> None:
        subject.reads.clear()  # a comment waits, and the work waits for the engine
        await subject.ended()
        assert subject.reasons == [FinishReason.SlowReader]

    wired(tmp_path, test, read_seconds=0.1)


def test_a_reader_that_stops_harms_no_other_stream(own_front: Callable[..., Front]) -> None:
    front = own_front(environment={"GRAPHPOD_MOST_WAITING": "500"})
    long = {"ignore_eos": True, "max_tokens": 190_000, "stream": True}
    body = json.dumps(say("ab", logprobs=True, top_logprobs=20, **long)).encode()
    address = urlsplit(front.http)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(60)
        client.connect((address.hostname, address.port))
        client.sendall(post(CHAT, body))
        while front.metric(REQUESTS, finish_reason="slow_reader") == 0:
            other = front.post(TEXT, {"model": "echo", "prompt": "ab"})
            assert other.status_code == 200, f"{other.text}\n{front.log.read_text()}"
            assert other.json()["choices"][0]["text"] == "ab"
        front.eventually("its pages are free", lambda: front.metric("graphpod_kv_cache_usage_ratio") == 0)
        answer = b""
        while b"0\r\n\r\n" not in answer[-100:]:
            answer += client.recv(1 << 20) or b"0\r\n\r\n"
    assert b'"code": "slow_reader"' in answer
    assert b"[DONE]" not in answer
    assert "Traceback" not in front.log.read_text()


def test_probes_are_answered_while_detokenising_holds_the_streams(
    own_front: Callable[..., Front], tmp_path: Path
) -> None:
    hold = tmp_path / "hold"
    front = own_front(environment={"GRAPHPOD_HOLD": str(hold)})
    hold.touch()
    address = urlsplit(front.http)
    body = json.dumps({"model": "echo", "prompt": "ab"}).encode()
    with socket.create_connection((address.hostname, address.port), timeout=60) as client:
        client.sendall(post(TEXT, body))
        front.eventually("the event loop is held", lambda: hold.with_suffix(".holding").exists())
        for path in ("/livez", "/readyz", "/metrics", "/warmup"):
            assert front.get(path).status_code == 200
        hold.unlink()
        assert client.recv(65536).startswith(b"HTTP/1.1 200")


def whole(folder: Path, options: Options, tokens: int) -> bool:
    """Whether the answer of so many tokens to a prompt of 1000 is written by the thread of the event loop."""

    async def run() -> bool:
        written: list[int] = []

        def reply(pieces: list[Piece]) -> TextReply:
            written.append(threading.get_ident())
            return TextReply("id", 0, "echo", [])

        class Made(Generation):
            async def pieces(self) -> AsyncIterator[list[Piece]]:
                yield [Piece(0, "a", FinishReason.Stop)]

            @property
            def completion_tokens(self) -> int:
                return tokens

        async def never() -> Any:
            await asyncio.Event().wait()

        engine: Any = None
        tokenizer = Tokenizer(write_model(folder / "model"))
        made = Made(engine, tokenizer, FrontMetrics("echo"), [[1] * 1000], options, 0.0)
        assert (await stream.answer(never, made, reply)).status_code == 200
        return written == [threading.get_ident()]

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("options", "tokens", "on_the_loop"),
    [
        (OPTIONS, 500, True),
        (OPTIONS, 513, False),
        (replace(OPTIONS, logprobs=0), 1, False),
        (replace(OPTIONS, prompt_logprobs=0), 1, False),
        (replace(OPTIONS, echo=True), 1, False),
        (replace(OPTIONS, token_ids=True), 1, False),
    ],
)
def test_the_loop_writes_small_answers_only(tmp_path: Path, options: Options, tokens: int, on_the_loop: bool) -> None:
    assert whole(tmp_path, options, tokens) == on_the_loop


def test_an_event_is_the_same_whether_its_constant_parts_are_encoded_again_or_not() -> None:
    def encode(piece: Piece) -> list[TextReply]:
        return [TextReply("id", 7, 'a "model"', [TextChoice(piece.index, piece.text, piece.finish)], None)]

    subject = Chunks(encode, [], list)
    for text in ("", "a", 'quo"te\\', "line\nbreak", "😀\u2028", "\x00", "\ue000"):
        whole = b"data: " + chunks._encoder.encode(encode(Piece(3, text))[0]) + b"\n\n"
        assert subject.pieces([Piece(3, text)]) == whole
