"""The clients that ask all through a test tell every question without an answer."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.eventually import Eventually
from tests.traffic import Client, asking

Answer = Callable[[int], tuple[int, str]]


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], str]]:
    """A server that gives its n-th question what the test says; code 0 cuts the connection."""
    servers: list[ThreadingHTTPServer] = []

    def start(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            asked = 0

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                Handler.asked += 1
                code, text = answer(Handler.asked)
                if not code:
                    self.close_connection = True
                    return
                body = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
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


def test_a_server_that_answers_is_asked_by_both_kinds_of_client(
    serve: Callable[[Answer], str], eventually: Eventually
) -> None:
    with asking(serve(lambda _: (200, "Paris")), {}) as traffic:
        eventually(lambda: {one.client for one in traffic.questions} == set(Client))
    assert traffic.failed == []
    assert traffic.texts == {"Paris"}


@pytest.mark.parametrize(("code", "words"), [(503, "503: "), (0, "RemoteDisconnected")])
def test_a_question_without_an_answer_is_told_and_asked_no_second_time(
    serve: Callable[[Answer], str], eventually: Eventually, code: int, words: str
) -> None:
    with asking(serve(lambda number: (code if number == 3 else 200, "Paris")), {}) as traffic:
        eventually(lambda: traffic.answered() > 4)
    (failed,) = traffic.failed
    assert words in failed.error
    assert str(failed) in traffic.told()
    assert traffic.told().startswith(f"{traffic.answered()} answers, 1 failures")


def test_two_texts_are_told_apart(serve: Callable[[Answer], str], eventually: Eventually) -> None:
    with asking(serve(lambda number: (200, f"{number % 2}")), {}) as traffic:
        eventually(lambda: traffic.answered() > 2)
    assert traffic.texts == {"0", "1"}
