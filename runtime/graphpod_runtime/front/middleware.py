"""The door of the API port: 401 without the key where there is one, 503 until Ready and after a drain,
`Connection: close` during one, `x-request-id` on all answers, a count of them, and a log line for each refusal. The API
behind it gets whole bodies of limited length.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graphpod_runtime.front.api_key import ApiKey
from graphpod_runtime.front.refusals import CODE, REFUSALS
from graphpod_runtime.front.request_body import BODY_LIMIT, HeldBytes, Interrupted, RequestBody
from graphpod_runtime.front.request_id import HEADER, request_id
from graphpod_runtime.front.requests.errors import CLIENT_GONE, ApiError, too_large, unauthorized, unavailable
from graphpod_runtime.front.requests.metrics import FrontMetrics
from graphpod_runtime.front.requests.status import Status

API = "/v1/"
"""Where a key is asked for."""
CLOSE = (b"connection", b"close")


class ApiMiddleware:
    """An ASGI application in front of the API; `app` is set once it has been imported."""

    def __init__(self, status: Status, metrics: FrontMetrics, key: ApiKey | None = None) -> None:
        self.app: ASGIApp | None = None
        self._key = key
        self._status = status
        self._metrics = metrics
        self._room = HeldBytes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        incoming = RequestBody(scope, receive, self._room)
        # A redirect would name this server's own address, which clients of a gateway cannot reach.
        if scope["path"].startswith(API):
            scope["path"] = API + scope["path"].removeprefix(API).rstrip("/")

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                status, id = message["status"], request_id(scope)
                self._metrics.http(scope["path"], scope["method"], str(status))
                if status >= 400 and status != CLIENT_GONE:
                    REFUSALS.line(id, scope["method"], scope["path"], status, scope.get(CODE))
                message["headers"] = [*message.get("headers", ()), (HEADER, id.encode())]
                if self._status.draining or not incoming.complete:
                    message["headers"].append(CLOSE)
            await send(message)

        try:
            refusal = self._unknown(scope) or self._refusal() or _declared_too_large(scope)
            if refusal is None and (refusal := await incoming.read()) is None and self.app is not None:
                await self.app(scope, incoming.receive, counted)
            else:
                await incoming.discard()
                refusal = refusal or _not_ready(self._status)
                scope[CODE] = refusal.code
                await _answer(refusal, counted)
        except Interrupted:
            self._metrics.http(scope["path"], scope["method"], str(CLIENT_GONE))
        finally:
            incoming.release()

    def _unknown(self, scope: Scope) -> ApiError | None:
        """401 without the key: before anything else about the server is disclosed."""
        if self._key is None or not scope["path"].startswith(API):
            return None
        sent = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return None if self._key.admits(sent.decode("latin-1")) else unauthorized()

    def _refusal(self) -> ApiError | None:
        if self._status.refusing:
            return unavailable("The server is shutting down; send the request again.", "draining")
        if not self._status.started or self.app is None:
            return _not_ready(self._status)
        if not self._status.engine_alive:
            return unavailable("The engine has died and the server is restarting; send the request again.", "not_ready")
        return None


def _declared_too_large(scope: Scope) -> ApiError | None:
    """413 for a content-length beyond the limit, before anything of the body is kept."""
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    return too_large(BODY_LIMIT) if int(declared) > BODY_LIMIT else None


def _not_ready(status: Status) -> ApiError:
    return unavailable(f"The model is not ready yet (warm-up: {status.state}); send the request again.", "not_ready")


async def _answer(error: ApiError, send: Send) -> None:
    headers = [(name.encode(), value.encode()) for name, value in error.headers().items()]
    body = error.encoded()
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
