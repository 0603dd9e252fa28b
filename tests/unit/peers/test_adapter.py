"""The adapter changes a request's model and tokens, and nothing of an answer."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from peers import adapter
from peers.adapter import Adapter

ANSWER = b'{"model": "own", "max_tokens": 999,  "choices": [ ]}\n'
"""Spaces as no encoder writes them."""
PIECES = [b"data: {\xf0\x9f", b"\x98\x80}\n\n", b"data: [DONE]\n\n"]


class Server(BaseHTTPRequestHandler):
    """Notes what it gets; answers the same bytes to all."""

    protocol_version = "HTTP/1.1"
    seen: list[tuple[str, str, dict[str, str], bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.seen.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        if self.path.endswith("stream"):
            self.send_response(200)
            self.send_header("transfer-encoding", "chunked")
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for piece in PIECES:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
            return
        self.send_response(418, "odd")
        self.send_header("x-own", "a, b")
        self.send_header("content-length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    do_GET = do_DELETE = do_POST

    def log_message(self, *arguments: Any) -> None:
        """Nothing to say."""


@pytest.fixture
def target() -> Iterator[tuple[str, list[Any]]]:
    seen: list[Any] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (Server,), {"seen": seen}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_answer_passes_byte_for_byte(target: tuple[str, list[Any]]) -> None:
    with Adapter(target[0], "ours", 5) as proxy:
        answer = httpx2.post(proxy.url + "/v1/completions", json={"model": "theirs", "prompt": "a"})
        assert (answer.status_code, answer.content, answer.headers["x-own"]) == (418, ANSWER, "a, b")
        with httpx2.stream("POST", proxy.url + "/stream", json={}) as stream:
            assert b"".join(stream.iter_raw()) == b"".join(PIECES)
            assert stream.headers["content-type"] == "text/event-stream"


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/v1/completions", {"model": "theirs", "max_tokens": 90}, {"model": "ours", "max_tokens": 5}),
        ("/v1/completions", {"model": "theirs", "max_tokens": 3, "n": 2}, {"model": "ours", "max_tokens": 3, "n": 2}),
        ("/v1/completions", {"model": "theirs"}, {"model": "ours"}),
        ("/v1/completions", {"max_tokens": 9, "min_tokens": 9}, {"max_tokens": 5, "min_tokens": 5}),
        ("/v1/completions", {"max_tokens": 9, "min_tokens": 2}, {"max_tokens": 5, "min_tokens": 2}),
        ("/v1/chat/completions", {"model": 7, "messages": []}, {"model": 7, "messages": [], "max_tokens": 5}),
        ("/v1/chat/completions", {"max_completion_tokens": 9}, {"max_completion_tokens": 5}),
        ("/v1/responses", {"input": "a"}, {"input": "a", "max_output_tokens": 5}),
        ("/tokenize", {"prompt": "a"}, {"prompt": "a"}),
    ],
)
def test_models_are_renamed_and_tokens_capped(
    target: tuple[str, list[Any]], path: str, body: dict[str, Any], expected: dict[str, Any]
) -> None:
    with Adapter(target[0], "ours", 5) as proxy:
        httpx2.post(proxy.url + path, json=body, headers={"authorization": "Bearer k"})
    method, found, headers, sent = target[1][0]
    assert (method, found, json.loads(sent), headers["authorization"]) == ("POST", path, expected, "Bearer k")


@pytest.mark.parametrize("body", [b"{", b"[1]", b"\xff", b'{"prompt":  "as it is"}'])
def test_a_body_without_either_passes_byte_for_byte(target: tuple[str, list[Any]], body: bytes) -> None:
    with Adapter(target[0], "ours", 5) as proxy:
        httpx2.post(proxy.url + "/v1/completions", content=body, headers={"content-type": "text/odd"})
    assert target[1][0][3] == body
    assert target[1][0][2]["content-type"] == "text/odd"


def test_without_a_name_models_keep_theirs(target: tuple[str, list[Any]]) -> None:
    with Adapter(target[0], None, None) as proxy:
        httpx2.get(proxy.url + "/v1/models/a%2Fb")
        httpx2.post(proxy.url + "/v1/chat/completions", json={"model": "a/b"})
    assert [path for _, path, _, _ in target[1]] == ["/v1/models/a%2Fb", "/v1/chat/completions"]
    assert json.loads(target[1][1][3]) == {"model": "a/b"}
    with Adapter(target[0], "our/s", None) as proxy:
        httpx2.delete(proxy.url + "/v1/models/a%2Fb")
    assert target[1][2][1] == "/v1/models/our%2Fs"


def test_it_is_small() -> None:
    assert len(Path(adapter.__file__).read_text().splitlines()) <= 150
