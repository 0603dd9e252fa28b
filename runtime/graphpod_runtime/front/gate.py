"""The door of the API port: 401 without the key where there is one, 503 until Ready and after a drain,
`Connection: close` during one, no body beyond a limit, not too many bytes of bodies at one time, and a count of all
answers.
"""

import asyncio

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
BODIES_LIMIT = 16 * BODY_LIMIT
"""Bytes of the bodies of all open requests; who comes beyond that gets 503."""
BODIES_FULL = f"Open requests hold {BODIES_LIMIT >> 20} MiB of prompts. Send the request again."
LARGE_BODY = 64 << 10
"""Bytes. One body of this size or more is parsed in a turn of the event loop, which answers probes in between."""
BODY_SECONDS = 30.0
"""A body that stops coming for so long is given up: its bytes count for the others."""


class Gate:
    """An ASGI application in front of the API; `app` is set once it has been imported."""

    def __init__(self, status: Status, metrics: FrontMetrics, key: ApiKey | None = None) -> None:
        self.app: ASGIApp | None = None
        self._key = key
        self._status = status
        self._metrics = metrics
        self._held = 0
        """Bytes of bodies of open requests."""
        self._turn = asyncio.Lock()

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
            await self._with_body(self.app, scope, receive, counted)

    async def _with_body(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs `app` with a body of limited length. What `receive` raises FastAPI lets pass while it reads a body, if
        it is this one exception.
        """
        read, complete = 0, False

        async def limited() -> Message:
            nonlocal read, complete
            if complete:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), BODY_SECONDS)
            except TimeoutError as error:
                raise HTTPException(408, f"no more of the body came for {BODY_SECONDS:.0f} s; send it again") from error
            complete = not message.get("more_body", False)
            size = len(message.get("body", b""))
            read, self._held = read + size, self._held + size
            if read > BODY_LIMIT:
                raise HTTPException(413, too_large(BODY_LIMIT).message)
            if self._held > BODIES_LIMIT:
                raise HTTPException(503, BODIES_FULL)
            if complete and read >= LARGE_BODY:
                # FastAPI parses it as soon as it has it; the next one gets its turn in a later round of the loop.
                async with self._turn:
                    await asyncio.sleep(0)
            return message

        try:
            await app(scope, limited, send)
        finally:
            self._held -= read

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


def _not_ready(status: Status) -> ApiError:
    return unavailable(f"The model is not ready yet (warm-up: {status.state}); send the request again.", "not_ready")


async def _answer(error: ApiError, send: Send) -> None:
    headers = [(name.encode(), value.encode()) for name, value in error.headers().items()]
    body = error.encoded()
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
