"""The door of the API port: 401 without the key where there is one, what the server says of itself, 503 until Ready and
after a drain, `Connection: close` during one, `x-request-id` on all answers, the fields that were ignored, a count of
answers, and a log line for each refusal. The API behind it gets whole bodies of limited length.
"""

from collections.abc import Callable

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graphpod_policy.http_limits import HttpLimits
from graphpod_runtime.front.access.api_key import ApiKey
from graphpod_runtime.front.load_report import with_report
from graphpod_runtime.front.metrics.exporter import FrontMetrics
from graphpod_runtime.front.other_paths import served_path
from graphpod_runtime.front.refusals import CODE, REFUSALS
from graphpod_runtime.front.request_body import BodyRoom, Interrupted, RequestBody
from graphpod_runtime.front.request_id import ANTHROPIC_HEADER, HEADER, IGNORED, request_id
from graphpod_runtime.front.requests.error_shapes import encoded_for, is_anthropic
from graphpod_runtime.front.requests.errors import CLIENT_GONE, ApiError, too_large, unauthorized, unavailable
from graphpod_runtime.front.server.connection import WHOLE
from graphpod_runtime.front.server_info import OPEN, PATHS, ServerInfo
from graphpod_runtime.front.status import Status

IGNORED_FIELDS = b"x-ignored-fields"
CLOSE = (b"connection", b"close")


class ApiMiddleware:
    """An ASGI application in front of the API; `app` is set once it has been imported."""

    def __init__(
        self, status: Status, metrics: FrontMetrics, info: ServerInfo, key: ApiKey | None, limits: HttpLimits
    ) -> None:
        self.app: ASGIApp | None = None
        self.arriving: Callable[[], None] = lambda: None
        """Called for a request that is let in, before its body is read."""
        self._key = key
        self._status = status
        self._metrics = metrics
        self._info = info
        self._room = BodyRoom(limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        incoming = RequestBody(scope, receive, self._room, has_come=WHOLE in scope.get("extensions", ()))
        # A redirect would name this server's own address, which clients of a gateway cannot reach.
        scope["path"] = served_path(scope["path"])

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                status, id = message["status"], request_id(scope)
                self._metrics.http(scope["path"], scope["method"], str(status))
                if status >= 400 and status != CLIENT_GONE:
                    REFUSALS.line(id, scope["method"], scope["path"], status, scope.get(CODE))
                names = (HEADER, ANTHROPIC_HEADER) if is_anthropic(scope["path"]) else (HEADER,)
                message["headers"] = [*message.get("headers", ()), *((name, id.encode()) for name in names)]
                if ignored := scope.get(IGNORED):
                    message["headers"].append((IGNORED_FIELDS, ignored.encode()))
                if self._status.draining or not incoming.complete:
                    message["headers"].append(CLOSE)
            await send(message)

        try:
            refusal = self._unknown(scope)
            if refusal is None and scope["path"] in PATHS:
                await incoming.discard()
                said = await self._info.answer(scope)
                if isinstance(said, Response):
                    await said(scope, incoming.receive, counted)
                else:
                    await _refuse(said, scope, counted)
                return
            refusal = refusal or self._refusal() or _declared_too_large(scope, self._room.limits)
            if refusal is None and scope["method"] == "POST":
                self.arriving()
            if refusal is None and (refusal := await incoming.read()) is None and self.app is not None:
                await self._call(self.app, scope, incoming.receive, counted)
            else:
                await incoming.discard()
                await _refuse(refusal or _not_ready(self._status), scope, counted)
        except Interrupted:
            self._metrics.http(scope["path"], scope["method"], str(CLIENT_GONE))
        finally:
            incoming.release()

    async def _call(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        self._info.load += 1
        try:
            await app(scope, receive, with_report(scope, send, self._info.exporter))
        finally:
            self._info.load -= 1

    def _unknown(self, scope: Scope) -> ApiError | None:
        """401 without the key: before anything else about the server is disclosed."""
        if self._key is None or scope["path"] in OPEN:
            return None
        sent = {name: value.decode("latin-1") for name, value in reversed(scope["headers"])}
        admitted = self._key.admits(sent.get(b"authorization", "")) or self._key.counts(sent.get(b"x-api-key", ""))
        return None if admitted else unauthorized()

    def _refusal(self) -> ApiError | None:
        if self._status.refusing:
            return unavailable("The server is shutting down; send the request again.", "draining")
        if not self._status.started or self.app is None:
            return _not_ready(self._status)
        if not self._status.engine_alive:
            return unavailable("The engine has died and the server is restarting; send the request again.", "not_ready")
        if (state := self._status.away) is not None:
            return unavailable(f"The weights are not on the device ({state}); send the request later.", "asleep")
        return None


def _declared_too_large(scope: Scope, limits: HttpLimits) -> ApiError | None:
    """413 for a content-length beyond the limit, before anything of the body is kept."""
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    return too_large(limits.body_bytes) if int(declared) > limits.body_bytes else None


def _not_ready(status: Status) -> ApiError:
    return unavailable(f"The model is not ready yet (warm-up: {status.state}); send the request again.", "not_ready")


async def _refuse(error: ApiError, scope: Scope, send: Send) -> None:
    scope[CODE] = error.code
    headers = [(name.encode(), value.encode()) for name, value in error.headers().items()]
    body = encoded_for(scope["path"], error)
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
