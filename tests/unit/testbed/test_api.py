"""Questions to an API server go over one connection, and over another one where the server has ended it."""

import json
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from testbed.control.api import Api, NotThere
from testbed.errors import TestbedError


class Server(ThreadingHTTPServer):
    """Answers with what it was asked, and counts its connections."""

    daemon_threads = True
    connections = 0
    lasting = True
    """Whether a connection is kept after an answer without a word that it ends."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_PATCH(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        asked = {"path": self.path, "body": self.rfile.read(length).decode(), "type": self.headers["Content-Type"]}
        refused = {"reason": "NotFound", "message": "no such object"}
        body = json.dumps(refused if self.path == "/nowhere" else asked).encode()
        self.send_response(404 if self.path == "/nowhere" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = not self.server.lasting

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def api(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Api:
    """Without TLS."""
    made = Api(f"https://127.0.0.1:{server.server_address[1]}", tmp_path / "ca", "secret")
    monkeypatch.setattr(Api, "_opened", lambda one: HTTPConnection(one.server.removeprefix("https://")))
    return made


def test_questions_share_a_connection_and_each_thread_has_its_own(api: Api, server: Server) -> None:
    for _ in range(3):
        assert api.read("/version")["path"] == "/version"
    api.merge("/one", {"a": 1})
    assert server.connections == 1
    other = threading.Thread(target=api.read, args=("/version",))
    other.start()
    other.join()
    assert server.connections == 2


def test_a_refusal_has_the_servers_words_and_ends_no_connection(api: Api, server: Server) -> None:
    with pytest.raises(NotThere, match=r"Error from server \(NotFound\): no such object"):
        api.read("/nowhere")
    api.read("/version")
    assert server.connections == 1


def test_where_the_server_has_ended_the_connection_it_is_asked_over_a_new_one(api: Api, server: Server) -> None:
    server.lasting = False
    assert [api.read("/version")["path"] for _ in range(3)] == ["/version"] * 3
    assert server.connections == 3


def test_where_nothing_listens_any_more_the_question_fails(api: Api, server: Server) -> None:
    server.lasting = False
    api.read("/version")
    server.shutdown()
    server.server_close()
    with pytest.raises(TestbedError, match="GET /version: "):
        api.read("/version")
