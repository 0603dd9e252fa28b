"""The door of the API port, without a server."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from graphpod_policy.http_limits import HttpLimits
from graphpod_runtime.front.metrics.exporter import Exporter, FrontMetrics
from graphpod_runtime.front.middleware import ApiMiddleware
from graphpod_runtime.front.server_info import ServerInfo

from .conftest import engine_json, first_status


@pytest.mark.parametrize(
    ("method", "serves", "did"),
    [
        ("POST", True, ["rouse", "read", "answer"]),
        ("GET", True, ["read", "answer"]),
        ("POST", False, ["read", "refuse"]),
    ],
    ids=["let in", "no prompt", "refused"],
)
def test_the_engine_hears_of_a_request_that_is_let_in_before_its_body_is_read(
    tmp_path: Path, method: str, serves: bool, did: list[str]
) -> None:
    status, found = first_status(engine_json(tmp_path, tmp_path)), list[str]()
    status.started = status.engine_alive = serves
    metrics = FrontMetrics("echo")
    gate = ApiMiddleware(status, metrics, ServerInfo(status, Exporter(metrics, status)), None, HttpLimits())

    async def app(*given: Any) -> None:
        found.append("answer")

    async def receive() -> Any:
        found.append("read")
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            found.append("refuse")

    gate.app, gate.arriving = app, lambda: found.append("rouse")
    headers = [(b"content-length", b"2")]
    asyncio.run(
        gate({"type": "http", "path": "/v1/chat/completions", "method": method, "headers": headers}, receive, send)
    )
    assert found == did
