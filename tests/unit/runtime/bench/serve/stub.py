"""A stand-in for an OpenAI server, in the test's own process: it answers at once, and notes what it was asked."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class Stub:
    """What it does, and what it was asked. `fail_every` n: each nth request gets `failure`; `pause` is seconds before
    each piece."""

    models: tuple[str, ...] = ("tiny",)
    ids: bool = True
    usage: bool = True
    pause: float = 0.0
    fail_every: int = 0
    failure: str = "429"
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    keys: set[str | None] = field(default_factory=set)
    open: int = 0
    most_open: int = 0
    left: int = 0
    """Requests whose client went before the end."""

    def app(self) -> web.Application:
        """Its routes."""
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/version", self._version)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_post("/v1/chat/completions", self._complete)
        return app

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": model, "owned_by": "stub"} for model in self.models]})

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": "1.2.3"})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if not body.get("stream"):
            return web.json_response({}, status=200 if self.ids else 400)
        self.bodies.append(body)
        self.paths.append(request.path)
        self.keys.add(request.headers.get("Authorization"))
        failing = self.fail_every and len(self.bodies) % self.fail_every == 0
        if failing and self.failure.isdigit():
            return web.Response(status=int(self.failure), text="the queue is full")
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        try:
            await response.prepare(request)
            await self._stream(response, request.path.endswith("chat/completions"), body, failing)
        except (ConnectionResetError, asyncio.CancelledError):
            self.left += 1
        finally:
            self.open -= 1
        return response

    async def _stream(self, response: web.StreamResponse, chat: bool, body: dict[str, Any], failing: bool) -> None:
        async def send(item: object) -> None:
            data = item if isinstance(item, str) else json.dumps(item)
            await response.write(f"data: {data}\n\n".encode())

        if chat:
            await send(
                {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
            )
        for at in range(body["max_tokens"]):
            await asyncio.sleep(self.pause)
            if failing and at == 1:
                if self.failure == "event":
                    await send({"error": {"message": "the engine died", "code": 500}})
                return
            last = at + 1 == body["max_tokens"]
            said = {"delta": {"content": f" w{at}"}} if chat else {"text": f" w{at}"}
            await send({"choices": [{"index": 0, **said, "finish_reason": "length" if last else None}]})
        if self.usage:
            prompt = body.get("prompt", body.get("messages"))
            usage = {"prompt_tokens": len(prompt), "completion_tokens": body["max_tokens"], "total_tokens": 0}
            await send({"choices": [], "usage": usage})
        await send("[DONE]")


@contextmanager
def serving(stub: Stub) -> Iterator[Stub]:
    """The stub on a free port, on an event loop in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    runner = web.AppRunner(stub.app(), handler_cancellation=True)

    async def start() -> None:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        stub.url = str(runner.addresses and f"http://127.0.0.1:{runner.addresses[0][1]}")

    asyncio.run_coroutine_threadsafe(start(), loop).result(30)
    try:
        yield stub
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()
