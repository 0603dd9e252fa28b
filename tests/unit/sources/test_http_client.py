"""The HTTP client: connections used again, proxies, and servers that break off."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from graphpod_sources.problem import Problem, Reason
from graphpod_sources.stores.http_client import Http, retry_after
from graphpod_sources.stores.proxies import proxy_for
from stubs.web import Reply
from tests.unit.sources.fetching import Script


@contextmanager
def saying(*answers: bytes) -> Iterator[str]:
    """A server that gives one answer to each connection, whatever was asked; its address."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for answer in answers:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/x"
    finally:
        server.close()


def body(url: str) -> bytes:
    with Http(1.0).get(url) as reply:
        return b"".join(bytes(chunk) for chunk in reply.chunks())


def test_a_connection_serves_many_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    real = socket.create_connection
    monkeypatch.setattr(socket, "create_connection", lambda *args, **more: made.append(1) or real(*args, **more))
    script, client = Script(lambda asked: Reply(200, {}, b"x" * 1000)), Http(5.0)
    with script.serving() as stub:
        for _ in range(5):
            with client.get(stub.url) as reply:
                assert reply.document() == b"x" * 1000
        with client.get(f"{stub.url}/unread"):
            pass
        with client.get(f"{stub.url}/%E4?a=b c&d=ü") as reply:
            assert reply.status == 200
    assert len(made) == 1
    assert script.asked[-1].query == "a=b%20c&d=%C3%BC"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", Reason.Truncated),
        (b"nonsense\r\n\r\n", Reason.Truncated),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n", Reason.Truncated),
        (b"HTTP/1.1 200 OK\r\n" + b"x" * 100_000, Reason.Truncated),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", Reason.Truncated),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nx", Reason.Truncated),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", Reason.Truncated),
        (b"HTTP/1.1 302 Found\r\nLocation: http://[::1\r\n\r\n", Reason.BadUri),
    ],
)
def test_an_answer_that_is_not_whole_is_a_problem(answer: bytes, reason: Reason) -> None:
    with saying(answer) as url, pytest.raises(Problem) as caught:
        body(url)
    assert caught.value.reason is reason


def test_chunks_of_a_body_without_a_length_are_joined() -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    with saying(answer, b"HTTP/1.0 200 OK\r\n\r\nto the end") as url:
        assert body(url) == b"abcde"
        assert body(url) == b"to the end"


def test_a_proxy_is_asked_and_gets_its_own_password_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Script(lambda asked: Reply(200, {}, b"by proxy"))
    with proxy.serving() as stub:
        host = stub.url.removeprefix("http://")
        monkeypatch.setenv("http_proxy", f"http://user:pass@{host}")
        monkeypatch.setenv("https_proxy", f"http://{host}")
        monkeypatch.setenv("no_proxy", "direct.example,10.0.0.0/8")
        assert body("http://models.example/x") == b"by proxy"
        with pytest.raises(Problem) as caught:  # the stub makes no tunnels
            body("https://models.example/x")
    assert proxy.asked[0].headers["host"] == "models.example"
    assert proxy.asked[0].headers["proxy-authorization"] == "Basic dXNlcjpwYXNz"
    assert caught.value.reason is Reason.Unreachable
    assert proxy_for("http", "direct.example") is None
    assert proxy_for("http", "10.1.2.3") is None
    assert proxy_for("http", "11.1.2.3") is not None


def test_a_proxy_that_cannot_be_used_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "socks5://user:secret@proxy:1080")
    with pytest.raises(Problem) as caught:
        proxy_for("https", "models.example")
    assert "HTTPS_PROXY" in caught.value.message
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    ("text", "seconds"), [("7", 7.0), ("", None), ("soon", None), ("-1", None), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0)]
)
def test_retry_after_is_a_number_or_a_date(text: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": text}) == seconds
