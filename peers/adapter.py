"""Between a suite and our server: renames models and caps tokens in requests. Answers pass as they are, byte for byte.

A suite names models that we do not have, and asks for answers that take a CPU minutes. Nothing else of a request is
changed, and a body that is not JSON passes untouched.
"""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Any
from urllib.parse import quote

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, web
from yarl import URL

LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""Fields that bound an answer."""
UNBOUNDED = {"/v1/chat/completions": "max_tokens", "/v1/responses": "max_output_tokens"}
"""Endpoints whose answers go on to the end of the context, and the field that bounds them there."""
OWN_HEADERS = {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "date", "server"}
"""Of a connection, not of a message."""
MODELS = "/v1/models/"
BODY = 64 << 20


class Adapter(AbstractContextManager["Adapter"]):
    """A proxy on a free port, in a thread. `served` is the name that replaces every model's, or None; `cap` the most
    tokens of an answer, or None.
    """

    def __init__(self, target: str, served: str | None, cap: int | None) -> None:
        self._target, self._served, self._cap = target, served, cap
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="adapter", daemon=True)
        self.port = 0

    def __enter__(self) -> "Adapter":
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    @property
    def url(self) -> str:
        """Without a slash at the end."""
        return f"http://localhost:{self.port}"

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        runner = self._loop.run_until_complete(self._start())
        self._started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    async def _start(self) -> web.AppRunner:
        app = web.Application(client_max_size=BODY)
        app.router.add_route("*", "/{path:.*}", self._handler())
        app.cleanup_ctx.append(self._session)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "localhost", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        return runner

    async def _session(self, app: web.Application) -> Any:
        # No limits of its own: how long an answer may take is the suite's to say.
        async with ClientSession(
            auto_decompress=False, cookie_jar=DummyCookieJar(), timeout=ClientTimeout(total=None)
        ) as self._client:
            yield

    def _handler(self) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            path = self._renamed(request.raw_path)
            body = self._changed(request.path, await request.read())
            headers = [(name, value) for name, value in request.headers.items() if name.lower() not in OWN_HEADERS]
            address = URL(self._target + path, encoded=True)
            async with self._client.request(
                request.method, address, data=body or None, headers=headers, allow_redirects=False,
                skip_auto_headers=("content-type", "user-agent", "accept", "accept-encoding"),
            ) as answer:  # fmt: skip
                reply = web.StreamResponse(status=answer.status, reason=answer.reason)
                for name, value in answer.headers.items():
                    if name.lower() not in OWN_HEADERS - {"content-length"}:
                        reply.headers.add(name, value)
                await reply.prepare(request)
                # A server that breaks off breaks off here, too: the connection closes without the end of the body.
                with suppress(ClientError):
                    async for piece in answer.content.iter_any():
                        await reply.write(piece)
                    await reply.write_eof()
                return reply

        return handle

    def _renamed(self, path: str) -> str:
        if self._served is not None and path.startswith(MODELS):
            return MODELS + quote(self._served, safe="")
        return path

    def _changed(self, path: str, body: bytes) -> bytes:
        """The request's body with another model and fewer tokens; the same bytes where neither applies."""
        try:
            fields = json.loads(body)
        except ValueError:
            return body
        if not isinstance(fields, dict):
            return body
        changes: dict[str, Any] = {}
        if self._served is not None and isinstance(fields.get("model"), str):
            changes["model"] = self._served
        if self._cap is not None:
            asked = {name: fields[name] for name in LIMITS if isinstance(fields.get(name), int)}
            least = fields.get("min_tokens")
            bounds = asked | ({"min_tokens": least} if isinstance(least, int) else {})
            changes |= {name: self._cap for name, value in bounds.items() if value > self._cap}
            if not asked and (name := UNBOUNDED.get(path)) is not None and fields.get(name) is None:
                changes[name] = self._cap
        return json.dumps(fields | changes).encode() if changes else body
