"""The answer of a pod's port, as bytes that have come through a port-forward."""

import pytest

from graphpod_operator.kube.port_forward import NoAnswer, body, is_whole

HEAD = b"HTTP/1.1 200 OK\r\n"


def test_an_answer_is_whole_once_its_length_has_come() -> None:
    answer = HEAD + b"Content-Length: 5\r\n\r\nhello"
    assert [is_whole(answer[:end]) for end in (10, len(answer) - 1, len(answer))] == [False, False, True]
    assert not is_whole(HEAD + b"\r\nhello"), "without a length it ends with the connection"


@pytest.mark.parametrize(
    "answer",
    [
        HEAD + b"Content-Length: 5\r\n\r\nhello",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        HEAD + b"Connection: close\r\n\r\nhello",
    ],
)
def test_a_body_is_read_however_its_end_is_marked(answer: bytes) -> None:
    assert body(answer, "/metrics", 100) == b"hello"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "no HTTP server"),
        (b"SSH-2.0", "no HTTP server: SSH-2.0"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "answered 404"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere\r\n\r\n", "answered 302"),
        (HEAD + b"Content-Length: 50\r\n\r\nhello", "ended 45 bytes early"),
        (HEAD + b"Content-Length: 500\r\n\r\n" + b"x" * 500, "more than 0 KiB"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffffff\r\nhello", "no HTTP server"),
        (HEAD + b"X: y\r\n" * 200 + b"\r\n", "no HTTP server"),
    ],
)
def test_anything_else_is_no_answer(answer: bytes, said: str) -> None:
    with pytest.raises(NoAnswer, match=said):
        body(answer, "/metrics", 100)
