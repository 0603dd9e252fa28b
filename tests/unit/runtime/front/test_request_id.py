"""`x-request-id` on every answer, and one log line for each refused request, in which nothing of a prompt stands."""

import json
import logging
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from graphpod_runtime.front.refusals import LINES_A_SECOND, RefusalLog

from .conftest import Front
from .test_openai import CHAT, TEXT, say

ASKED = {"model": "echo", "prompt": "ab"}


def post(front: Front, path: str, body: Any, id: str | None = None) -> httpx2.Response:
    headers = {"content-type": "application/json"} | ({} if id is None else {"x-request-id": id})
    return httpx2.post(front.http + path, content=json.dumps(body), headers=headers)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (TEXT, ASKED, 200),
        (CHAT, say("x", stream=True), 200),
        (TEXT, ASKED | {"suffix": "x"}, 400),
        ("/v1/none", {}, 404),
    ],
)
def test_an_id_that_the_client_sent_comes_back_on_every_answer(front: Front, path: str, body: Any, status: int) -> None:
    response = post(front, path, body, "trace-1.a:b/c=")
    assert (response.status_code, response.headers.get_list("x-request-id")) == (status, ["trace-1.a:b/c="])


@pytest.mark.parametrize("id", [None, "", "a" * 129, "two words", 'quote"', "a\tb"])
def test_without_a_valid_one_the_id_is_the_answers_own(front: Front, id: str | None) -> None:
    whole = post(front, CHAT, say("x"), id)
    assert whole.headers["x-request-id"] == whole.json()["id"]
    assert whole.json()["id"].startswith("chatcmpl-")
    stream = post(front, TEXT, ASKED | {"stream": True}, id)
    assert stream.headers["x-request-id"] == json.loads(stream.text.split("\n\n")[0].removeprefix("data: "))["id"]
    refused = post(front, TEXT, ASKED | {"suffix": "x"}, id)
    assert re.fullmatch(r"req-[0-9a-f]{32}", refused.headers["x-request-id"])
    assert post(front, TEXT, ASKED | {"suffix": "x"}, id).headers["x-request-id"] != refused.headers["x-request-id"]


def refusals(front: Front) -> list[str]:
    return re.findall(r"graphpod.front INFO (refused: .*)", front.log.read_text())


def test_each_refused_request_is_one_line_and_an_answered_one_is_none(own_front: Callable[..., Front]) -> None:
    front = own_front()
    assert post(front, TEXT, ASKED).status_code == 200
    post(front, TEXT, ASKED | {"prompt": "my secret", "suffix": "x"}, "one")
    post(front, "/v1/a%0Ab?key=secret", {}, "two")
    httpx2.get(front.http + CHAT, headers={"x-request-id": "three"})
    httpx2.post(front.http + CHAT, content=b"secret", headers={"x-request-id": "four"})
    assert refusals(front) == [
        f"refused: id=one method=POST path={TEXT} status=400 code=unsupported_parameter",
        "refused: id=two method=POST path=/v1/a%0Ab status=404 code=unknown_url",
        f"refused: id=three method=GET path={CHAT} status=405 code=method_not_supported",
        f"refused: id=four method=POST path={CHAT} status=400 code=invalid_json",
    ]
    assert "secret" not in front.log.read_text()


def test_what_is_no_http_gets_an_id_and_a_line_too(own_front: Callable[..., Front]) -> None:
    front = own_front()
    address = urlsplit(front.http)
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(b"GET\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    found = re.search(r"^x-request-id: (req-\w+)\r$", answer, re.MULTILINE)
    assert found
    assert refusals(front) == [f"refused: id={found[1]} method=- path=- status=400 code=invalid_http"]


def test_a_request_without_the_key_has_an_id_and_a_line(own_front: Callable[..., Front], tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("first\n")
    front = own_front(api_key_file=file)
    response = post(front, TEXT, ASKED, "mine")
    assert (response.status_code, response.headers["x-request-id"]) == (401, "mine")
    assert refusals(front) == [f"refused: id=mine method=POST path={TEXT} status=401 code=invalid_api_key"]


def test_the_lines_of_one_second_are_bounded_and_the_next_counts_the_others(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    lines = RefusalLog(lambda: now)
    with caplog.at_level(logging.INFO, "graphpod.front"):
        for number in range(LINES_A_SECOND + 7):
            lines.line(str(number), "GET", "/", 404, "unknown_url")
        assert len(caplog.messages) == LINES_A_SECOND
        now = 101.0
        lines.line("later", "GET", "/" + "a" * 1000, 404, "unknown_url")
        lines.line("last", "GET", "/", 404, "unknown_url")
    assert caplog.messages[-2].endswith("status=404 code=unknown_url not_logged_before=7")
    assert len(caplog.messages[-2]) < 300
    assert caplog.messages[-1] == "refused: id=last method=GET path=/ status=404 code=unknown_url"
