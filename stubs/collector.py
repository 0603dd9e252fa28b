"""An OpenTelemetry collector for tests: takes spans by OTLP over HTTP, and shows them.

A test may make it answer with another status, or late.
"""

import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class Received:
    """One span. Ids are hexadecimal, `parent` empty for one without; times are nanoseconds since 1970."""

    name: str
    trace: str
    id: str
    parent: str
    kind: int
    began: int
    ended: int
    failed: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]


@dataclass
class Collector:
    """Listens on a free port of one of this machine's addresses while it is entered."""

    status: int = 200
    late: threading.Event | None = None
    """Answers wait for it."""
    asked: int = 0
    """Messages that came."""
    spans: list[Received] = field(default_factory=list)
    every: list[Received] = field(default_factory=list)
    """The same; `spans` may be cleared."""
    host: str = "127.0.0.1"

    def __post_init__(self) -> None:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.asked += 1
                if collector.late is not None:
                    collector.late.wait(60)
                status = collector.status if self.path == "/v1/traces" else 404
                if status == 200:
                    spans = received(body)
                    collector.spans += spans
                    collector.every += spans
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(status)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        self._server = ThreadingHTTPServer((self.host, 0), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """The base that OTEL_EXPORTER_OTLP_ENDPOINT names."""
        return f"http://{self.host}:{self._server.server_port}"

    def named(self, name: str) -> list[Received]:
        """The spans of one name, in the order in which they came."""
        return [span for span in self.spans if span.name == name]

    def __enter__(self) -> "Collector":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.late is not None:
            self.late.set()
        self._server.shutdown()
        self._server.server_close()


def received(body: bytes) -> list[Received]:
    """The spans of one message."""
    message = ExportTraceServiceRequest.FromString(body)
    return [
        Received(
            span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(), span.kind,
            span.start_time_unix_nano, span.end_time_unix_nano, span.status.code == 2,
            _plain(span.attributes), _plain(of_resource.resource.attributes),
        )
        for of_resource in message.resource_spans
        for of_scope in of_resource.scope_spans
        for span in of_scope.spans
    ]  # fmt: skip


def _plain(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)
