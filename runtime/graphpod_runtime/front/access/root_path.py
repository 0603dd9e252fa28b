"""A prefix that clients put before every path, for proxies that route by path and pass it on."""

from starlette.types import ASGIApp, Receive, Scope, Send


class RootPath:
    """`app` below `prefix`, and without it: probes and clients next to the proxy go on as they are."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app, self._prefix = app, prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path == self._prefix or path.startswith(self._prefix + "/"):
            scope["path"] = path[len(self._prefix) :] or "/"
        await self._app(scope, receive, send)
