"""Routes that are found by their path alone answer as the others do, errors included."""

import asyncio
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from graphpod_runtime.front.server.application import Application


class Wrong(Exception):
    """Has a handler."""


class Breaks(Response):
    """Fails after its header."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise Wrong("late")


def application() -> Application:
    app = Application("test")

    @app.busy_post("/busy")
    async def busy(request: Request) -> Response:
        word = (await request.body()).decode()
        match word:
            case "wrong":
                raise Wrong(word)
            case "mistake":
                raise KeyError(word)
            case "late":
                return Breaks()
        return PlainTextResponse(word)

    @app.exception_handler(Wrong)
    async def wrong(request: Request, error: Wrong) -> Response:
        return PlainTextResponse(f"{request.url.path}: {error}", 400)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return PlainTextResponse("ours", 500)

    return app


def answer(word: str, method: str = "POST") -> tuple[list[int], bytes, str | None]:
    """Status lines and body of the answer, and what the server logs."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": word.encode(), "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": "/busy", "headers": [], "query_string": b"", "root_path": ""}
    raised = None
    try:
        asyncio.run(application()(scope, receive, send))
    except Exception as error:  # noqa: BLE001  as a server does
        raised = type(error).__name__
    statuses = [message["status"] for message in sent if "status" in message]
    return statuses, b"".join(message.get("body", b"") for message in sent), raised


@pytest.mark.parametrize(
    ("word", "statuses", "body", "raised"),
    [
        ("hello", [200], b"hello", None),
        ("wrong", [400], b"/busy: wrong", None),
        ("mistake", [500], b"ours", "KeyError"),
        ("late", [200], b"", "Wrong"),
    ],
)
def test_a_busy_route_answers_once(word: str, statuses: list[int], body: bytes, raised: str | None) -> None:
    assert answer(word) == (statuses, body, raised)


def test_other_methods_of_its_path_go_the_usual_way() -> None:
    assert answer("", "GET")[0] == [405]
