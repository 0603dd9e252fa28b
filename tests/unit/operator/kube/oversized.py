"""Objects that break a bound, and an API server that has them."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio import client

from graphpod_operator.kube import bounds
from graphpod_operator.kube.connection import Connection
from tests.unit.operator.objects import NAMESPACE

DEEP = 1200
"""More than a reader takes where Python's recursion limit is the usual one, as it is in the operator."""
STORED = {"labels": {"app.kubernetes.io/managed-by": "graphpod", "graphpod.dev/inferenceservice": "demo"}}


def nest(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


def metadata(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "resourceVersion": "7", **more}


def plain(name: str, **more: Any) -> bytes:
    return json.dumps({"metadata": metadata(name), **more}).encode()


def deep(name: str, levels: int = DEEP) -> bytes:
    """An object as the API server stores one: its fields, as deep, are in managedFields too."""
    told = json.dumps(metadata(name, **STORED, managedFields=[{"manager": "kubectl"}])).encode()
    fields = told.replace(b'"manager": "kubectl"', b'"fieldsV1":' + nest(levels))
    return b'{"apiVersion":"v1","metadata":' + fields + b',"spec":{"it":' + nest(levels) + b'},"status":{"x":"}"}}'


def large(name: str, size: int = bounds.OBJECT_BYTES) -> bytes:
    return plain(name, data={"x": "]" * size})


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """An API server of one handler, which counts what it sends, and a wire to it."""

    def __init__(self) -> None:
        self.handler: Handler | None = None
        self.asked: list[dict[str, str]] = []
        self.wire: Connection
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append({**request.query, "accept": request.headers["Accept"]})
        assert request.headers["Accept-Encoding"] == "identity"
        assert self.handler is not None
        return await self.handler(request)


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    """Serve what its handler answers."""
    made, app = Server(), web.Application()
    app.router.add_route("*", "/{rest:.*}", made.answer)
    async with TestServer(app) as far:
        made.url = str(far.make_url("")).rstrip("/")
        made.wire = Connection(
            client.ApiClient(client.Configuration(host=made.url)), lambda code, method, seconds: None
        )
        yield made
        await made.wire.close()


def listing(items: list[bytes]) -> Handler:
    """Pages of a list, as a custom kind has them: items first."""

    async def handler(request: web.Request) -> web.StreamResponse:
        begin, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        more = str(begin + limit) if begin + limit < len(items) else ""
        page = items[begin : begin + limit]
        if "PartialObjectMetadata" in request.headers["Accept"]:
            page = [json.dumps({"metadata": json.loads(item)["metadata"]}).encode() for item in page]
        text = (
            b'{"items":[' + b",".join(page) + b'],"metadata":{"continue":"%s","resourceVersion":"9"}}' % more.encode()
        )
        return web.Response(body=text, content_type="application/json")

    return handler


def events(*items: bytes) -> bytes:
    """Lines of a watch."""
    return b"".join(b'{"type":"ADDED","object":' + item + b"}\n" for item in items)


def told(raw: Any) -> tuple[str, bool]:
    """Its name, and whether it was outlined."""
    return raw["metadata"]["name"], bounds.BREACH in raw
