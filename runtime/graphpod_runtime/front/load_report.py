"""The load in the header of an answer, to clients that ask for it: ORCA's report, in the two formats that vLLM has.

A client, usually a gateway, asks by `endpoint-load-metrics-format: TEXT` or `JSON`.
"""

import json

from starlette.types import Message, Scope, Send

from graphpod_runtime.front.metrics.exporter import Exporter

ASKED, REPORT = b"endpoint-load-metrics-format", b"endpoint-load-metrics"


def with_report(scope: Scope, send: Send, exporter: Exporter) -> Send:
    """`send`, which adds the report where the request asks for one; another format is not answered."""
    asked = next((value for name, value in scope["headers"] if name == ASKED), b"").lower()
    if asked not in (b"text", b"json"):
        return send

    async def reporting(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] < 400:
            message["headers"] = [*message.get("headers", ()), (REPORT, _report(asked, exporter).encode())]
        await send(message)

    return reporting


def _report(asked: bytes, exporter: Exporter) -> str:
    load = exporter.load()
    if asked == b"json":
        return f"JSON {json.dumps({'named_metrics': load})}"
    return "TEXT " + ", ".join(f"named_metrics.{name}={value}" for name, value in load.items())
