"""The clients that ask all through a test tell every question without an answer."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.eventually import Eventually
from tests.traffic import Client, asking

Answer = Callable[[int], tuple[int, str]]


def whole(text: str) -> bytes:
    return json.dumps({"choices": [{"message": {"content": text}}]}).encode()


def stream(text: str) -> bytes:
    """A piece for each letter, and an end; a text that stops with … has none."""
    pieces = [{"choices": [{"delta": {"content": letter}, "finish_reason": None}]} for letter in text]
    end = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    events = [json.dumps(event) for event in [*pieces, end]] + ["[DONE]"]
    return "".join(f"data: {event}\n\n" for event in (events[: len(text)] if "…" in text else events)).encode()


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], str]]:
    """A server that gives its n-th question what the test says; code 0 cuts the connection."""
    servers: list[ThreadingHTTPServer] = []

    def start(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            asked = 0

            def do_POST(self) -> None:
                question = json.loads(self.rfile.read(int(self.headers["content-length"])))
                Handler.asked += 1
                code, text = answer(Handler.asked)
                if not code:
                    self.close_connection = True
                    return
                body = stream(text) if question.get("stream") else whole(text)
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_address[1]}/v1/chat/completions"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_server_that_answers_is_asked_by_every_kind_of_client(
    serve: Callable[[Answer], str], eventually: Eventually
) -> None:
    with asking(serve(lambda _: (200, "Paris")), {}) as traffic:
        eventually(lambda: traffic.answered() > 1)
    assert traffic.failed == []
    assert [traffic.texts(client) for client in Client] == [{"Paris"}] * 3


@pytest.mark.parametrize(("code", "words"), [(503, "503: "), (0, "RemoteDisconnected")])
def test_a_question_without_an_answer_is_told_and_asked_no_second_time(
    serve: Callable[[Answer], str], eventually: Eventually, code: int, words: str
) -> None:
    with asking(serve(lambda number: (code if number == 3 else 200, "Paris")), {}) as traffic:
        eventually(lambda: traffic.answered() > 1)
    (failed,) = traffic.failed
    assert words in failed.error
    assert str(failed) in traffic.told()
    assert traffic.told().startswith(f"{len(traffic.questions)} questions (")
    assert ", 1 failures" in traffic.told()


def test_a_stream_without_its_end_is_no_answer(serve: Callable[[Answer], str], eventually: Eventually) -> None:
    with asking(serve(lambda _: (200, "Par…")), {}) as traffic:
        eventually(lambda: bool(traffic.failed))
    assert {one.client for one in traffic.failed} == {Client.Streams}
    assert "the stream broke off" in traffic.failed[0].error


def test_two_texts_are_told_apart(serve: Callable[[Answer], str], eventually: Eventually) -> None:
    with asking(serve(lambda number: (200, f"{number}")), {}) as traffic:
        eventually(lambda: traffic.answered() > 1)
    assert all(len(traffic.texts(client)) > 1 for client in Client)
