"""The door of the API port: 401 without the key where there is one, 503 until Ready and after a drain,
`Connection: close` during one, no body beyond a limit, and a count of all answers.
"""

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graphpod_runtime.front.api_key import ApiKey
from graphpod_runtime.front.metrics import FrontMetrics
from graphpod_runtime.front.openai.errors import ApiError, too_large, unauthorized, unavailable
from graphpod_runtime.front.status import Status

API = "/v1/"
"""Where a key is asked for."""
BODY_LIMIT = 4 << 20
"""Bytes. A prompt of 128k tokens takes 0.6 MB; a parsed body takes up to thirty times its bytes."""


class Gate:
    """An ASGI application in front of the API; `app` is set once it has been imported."""

    def __init__(self, status: Status, metrics: FrontMetrics, key: ApiKey | None = None) -> None:
        self.app: ASGIApp | None = None
        self._key = key
        self._status = status
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.http(scope["path"], scope["method"], str(message["status"]))
                if self._status.draining:
                    message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        refusal = self._unknown(scope) or self._refusal() or _declared_too_large(scope)
        if refusal is not None or self.app is None:
            await _answer(refusal or _not_ready(self._status), counted)
        else:
            await self.app(scope, _limited(receive), counted)

    def _unknown(self, scope: Scope) -> ApiError | None:
        """401 for who does not send the key: before anything else is told of the server."""
        if self._key is None or not scope["path"].startswith(API):
            return None
        sent = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return None if self._key.admits(sent.decode("latin-1")) else unauthorized()

    def _refusal(self) -> ApiError | None:
        if self._status.refusing:
            return unavailable("The server is shutting down; send the request again.", "draining")
        if not self._status.started:
            return _not_ready(self._status)
        if not self._status.engine_alive:
            return unavailable("The engine has died and the server is restarting; send the request again.", "not_ready")
        return None


def _declared_too_large(scope: Scope) -> ApiError | None:
    """413 for a content-length beyond the limit; the server reads past the body and keeps none of it."""
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    return too_large(BODY_LIMIT) if int(declared) > BODY_LIMIT else None


def _limited(receive: Receive) -> Receive:
    """`receive`, which ends a body of unknown length at the limit."""
    read = 0

    async def counting() -> Message:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > BODY_LIMIT:
            # FastAPI lets this one exception of the door's pass while it reads a body.
            raise HTTPException(413, too_large(BODY_LIMIT).message)
        return message

    return counting


def _not_ready(status: Status) -> ApiError:
    return unavailable(f"The model is not ready yet (warm-up: {status.state}); send the request again.", "not_ready")


async def _answer(error: ApiError, send: Send) -> None:
    headers = [(name.encode(), value.encode()) for name, value in error.headers().items()]
    body = error.encoded()
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
