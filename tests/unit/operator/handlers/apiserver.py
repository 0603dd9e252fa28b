"""As much of an API server as kopf needs to watch services: discovery, a list, a watch. It counts what it is asked."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from graphpod_operator.kube.resources import Resource

SERVICES = Resource.InferenceService
KIND = {
    "name": SERVICES.plural,
    "singularName": "inferenceservice",
    "kind": SERVICES.kind,
    "namespaced": True,
    "verbs": ["get", "list", "watch", "patch"],
}
NAMESPACES = {
    "name": "namespaces",
    "singularName": "namespace",
    "kind": "Namespace",
    "namespaced": False,
    "verbs": ["list", "watch"],
}
"""kopf waits until it knows them, though it watches the whole cluster."""


class ApiServer:
    """`items` are listed; what is put into `events` goes to whoever watches. With `refuses`, each answer has that
    status.
    """

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.asked: list[str] = []
        self.since: list[str] = []
        """The versions that were watched from."""
        self.refuses: int | None = None
        self.url = ""

    def lists(self) -> int:
        """How often services were listed."""
        return self.asked.count(f"/apis/{SERVICES.api_version}/{SERVICES.plural}")

    def kubeconfig(self, folder: Path) -> Path:
        """Credentials for it, written into a folder."""
        path = folder / "kubeconfig"
        config = {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            "clusters": [{"name": "here", "cluster": {"server": self.url}}],
            "users": [{"name": "me", "user": {"token": "any"}}],
        }
        path.write_text(yaml.safe_dump(config))
        return path

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["ApiServer"]:
        """Serve meanwhile, at `url`."""
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        watches = request.query.get("watch") == "true"
        self.asked.append(f"{request.path}?watch" if watches else request.path)
        if self.refuses is not None:
            return web.json_response({"kind": "Status", "code": self.refuses}, status=self.refuses)
        if watches:
            return await self._watch(request)
        match request.path:
            case "/api":
                return web.json_response({"versions": ["v1"]})
            case "/api/v1":
                return web.json_response({"groupVersion": "v1", "resources": [NAMESPACES]})
            case "/apis":
                version = {"groupVersion": SERVICES.api_version, "version": SERVICES.version}
                group = {"name": SERVICES.group, "versions": [version], "preferredVersion": version}
                return web.json_response({"groups": [group]})
            case path if path == f"/apis/{SERVICES.api_version}":
                return web.json_response({"groupVersion": SERVICES.api_version, "resources": [KIND]})
            case path if path == f"/apis/{SERVICES.api_version}/{SERVICES.plural}":
                return web.json_response({"metadata": {"resourceVersion": "7"}, "items": self.items})
        return web.json_response({"kind": "Status", "code": 404}, status=404)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self.since.append(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            event = await self.events.get()
            await response.write(json.dumps(event).encode() + b"\n")
            if event["type"] == "ERROR":
                return response
