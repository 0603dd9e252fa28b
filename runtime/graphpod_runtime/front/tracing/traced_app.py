"""The outermost layer of the API port where tracing is on: begins and ends the span of each request."""

from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graphpod_runtime.front.request_id import HEADER
from graphpod_runtime.front.requests.request_trace import CURRENT
from graphpod_runtime.front.server_info import PATHS

if TYPE_CHECKING:
    from graphpod_runtime.front.tracing.tracer import Tracer


class TracedApp:
    """`app` with a span for each request, but those about the server itself. Until there is a `tracer`, `app` as it is:
    what it imports takes a while.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.tracer: Tracer | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tracer = self.tracer
        if tracer is None or scope["path"].rstrip("/") in PATHS or (request := tracer.begin(scope)) is None:
            await self._app(scope, receive, send)
            return
        status: int | None = None
        id: str | None = None

        async def noting(message: Message) -> None:
            nonlocal status, id
            if message["type"] == "http.response.start":
                status = message["status"]
                id = next((value.decode() for name, value in message["headers"] if name == HEADER), None)
            await send(message)

        token = CURRENT.set(request.trace)
        try:
            await self._app(scope, receive, noting)
        finally:
            CURRENT.reset(token)
            tracer.end(request, scope, status, id)
