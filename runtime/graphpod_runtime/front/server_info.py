"""What gateways and peers' tools ask of the API port about the server itself: answered from the first moment on, and
during a drain, when the API is not.
"""

import asyncio

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from graphpod_runtime.front.metrics.exporter import Exporter
from graphpod_runtime.front.requests.errors import ApiError, unavailable, unknown_url, wrong_method
from graphpod_runtime.front.status import Status

OPEN = ("/health", "/ping")
"""Without a key: load balancers send none."""
PATHS = (*OPEN, "/version", "/load", "/metrics")
METHODS = ("GET", "HEAD")


class ServerInfo:
    """The answers of one server. `load` counts the requests that are open."""

    def __init__(self, status: Status, exporter: Exporter) -> None:
        self._status = status
        self.exporter = exporter
        self._rendering = asyncio.Lock()
        self.load = 0

    @property
    def paths(self) -> tuple[str, ...]:
        """Those that are served: `spec.engine.httpMetrics` closes /metrics."""
        return PATHS if self._status.config.serving.http_metrics else PATHS[:-1]

    @property
    def version(self) -> str:
        """The engine's."""
        return str(self._status.report["engine"])

    def endpoints(self, api: tuple[str, ...]) -> str:
        """Everything that the API port serves, for a 404."""
        return ", ".join((*api, *(f"GET {path}" for path in self.paths)))

    async def answer(self, scope: Scope) -> Response | ApiError:
        """The answer to a request for one of PATHS."""
        path, method = scope["path"], scope["method"]
        if path not in self.paths:
            return unknown_url(method, path, ", ".join(f"GET {one}" for one in self.paths))
        if method not in METHODS:
            return wrong_method(method, path, ", ".join(METHODS))
        match path:
            case "/version":
                return _json({"version": self.version})
            case "/load":
                return _json({"server_load": self.load})
            case "/metrics":
                return await self._metrics(Headers(scope=scope).get("accept", ""))
        return self._health()

    def _health(self) -> Response | ApiError:
        if self._status.ready:
            return Response(status_code=200)
        if self._status.draining:
            return unavailable("The server is shutting down; send requests to another replica.", "draining")
        if self._status.started and self._status.change is not None:
            return unavailable(f"The model's weights are not on the device ({self._status.sleep_state}).", "asleep")
        return unavailable(f"The model is not ready ({self._status.engine_state}).", "not_ready")

    async def _metrics(self, accept: str) -> Response:
        # Off the loop of the streams, and one at a time: the text has hundreds of lines, and anyone may ask for it.
        async with self._rendering:
            body, content_type = await asyncio.to_thread(self.exporter.render, accept)
        return Response(body, headers={"content-type": content_type})


def _json(value: dict[str, object]) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
