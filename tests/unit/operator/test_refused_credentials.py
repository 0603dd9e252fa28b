"""The watch of services whose credentials the API server does not take: it ends, and begins anew after a pause."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from aiohttp import web

from graphpod_operator.watch import service_watch
from graphpod_operator.watch.feed import Feed


async def served() -> bool:
    return True


async def test_credentials_that_are_refused_are_not_offered_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def refuse(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response({"kind": "Status", "code": 401}, status=401)

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    config = tmp_path / "config"
    config.write_text(yaml.safe_dump(kubeconfig(runner.addresses[0][1])))
    monkeypatch.setenv("KUBECONFIG", str(config))

    ended = asyncio.Event()
    watching = asyncio.create_task(service_watch.run(cast(Feed, None), ("team",), lambda: None, ended.set, served))
    try:
        await asyncio.wait_for(ended.wait(), 20)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await runner.cleanup()
    assert 1 <= len(asked) <= 4


def kubeconfig(port: int) -> dict[str, Any]:
    return {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "me", "user": {"token": "revoked"}}],
    }
