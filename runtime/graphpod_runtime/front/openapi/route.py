"""The route of the document. The document is made at the first request for it, and kept."""

import re
from collections.abc import Iterator, Sequence
from functools import cache

import msgspec
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.responses import Response

from graphpod_runtime.front.openapi.document import document

PATH = "/openapi.json"
ENDPOINT = f"GET {PATH}"
CONVERTER = re.compile(r":\w+}")
"""In a route's path, what a parameter may hold."""


def add_document(app: FastAPI, model: str, version: str, info: Sequence[str], *, key: bool) -> None:
    """Adds GET /openapi.json to an application with all its routes; `info` are the paths that the server answers
    before the application, `key` whether it wants an API key.
    """

    @cache
    def encoded() -> bytes:
        return msgspec.json.encode(document(model, version, [*served(app), *(f"GET {path}" for path in info)], key=key))

    @app.get(PATH)
    async def openapi() -> Response:
        return Response(encoded(), media_type="application/json")


def served(app: FastAPI) -> Iterator[str]:
    """Method and path of every route, as `POST /v1/completions`."""
    for route in app.routes:
        if isinstance(route, APIRoute):
            for method in sorted(route.methods or ()):
                yield f"{method} {CONVERTER.sub('}', route.path)}"
