"""A FastAPI application whose busiest routes are found by method and path alone.

FastAPI's layers, its list of routes and what it reads of an endpoint's arguments take longer than all else that happens
to a request before its prompt is with the engine.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

Endpoint = Callable[[Request], Awaitable[Response]]


class Application(FastAPI):
    """Errors of an endpoint are answered by the application's exception handlers, whichever way it was found."""

    def __init__(self, title: str) -> None:
        super().__init__(title=title, openapi_url=None, redirect_slashes=False)
        self._busy: dict[str, Endpoint] = {}

    def busy_post(self, path: str) -> Callable[[Endpoint], Endpoint]:
        """As `post`, for an endpoint that takes the request alone and a path without parameters."""

        def add(endpoint: Endpoint) -> Endpoint:
            self._busy[path] = self.post(path)(endpoint)
            return endpoint

        return add

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._busy.get(scope["path"]) if scope.get("method") == "POST" else None
        if endpoint is None:
            await super().__call__(scope, receive, send)
            return
        request, begun = Request(scope, receive), False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            response = await endpoint(request)
            await response(scope, receive, noting)
        except Exception as error:
            kinds = [kind for kind in type(error).__mro__ if kind in self.exception_handlers]
            if begun:
                raise
            handler: Any = self.exception_handlers[kinds[0]]
            await (await handler(request, error))(scope, receive, send)
            if kinds[0] is Exception:
                raise  # the server logs the traceback
