"""Answers of the API server for a reader that is not ours: lists and events of a watch, each object within bounds.

kopf reads a list at once and each event with `json.loads`, which a deep object ends. It takes a session of our making,
whose responses hand such an object on as its outline (`bounds`).

kopf watches from the version of a list that it makes first. The store has been filled by our own list by then. So
kopf's first list is answered as if it were ours, without objects: it would only report again what is known, with a task
for each object, while the main thread plans. What has changed since our list is what the watch begins with.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, MutableMapping
from typing import Any

import aiohttp
import msgspec

from graphpod_operator.kube import bounds
from graphpod_operator.kube.resources import Resource

KIND = Resource.InferenceService
_SERVICES = re.compile(rf"/apis/{re.escape(KIND.api_version)}(?:/namespaces/(?P<namespace>[^/]+))?/{KIND.plural}$")


def bounded(too_long: Callable[[], bool], listed: MutableMapping[str | None, int]) -> type[aiohttp.ClientResponse]:
    """The class of responses. `too_long` is called for a list of more than ANSWER_BYTES, and says whether the next one
    will be shorter; it is asked for again then. `listed` are versions of lists of services, of one namespace or (None)
    of all: the next list of each is answered by that version alone, and the version is taken out.
    """

    class BoundedResponse(aiohttp.ClientResponse):
        """A response whose list, or whose lines, are within bounds."""

        async def start(self, connection: Any) -> aiohttp.ClientResponse:
            started = await super().start(connection)
            if self.status < 400:
                self.content = _Lines(self.content)  # type: ignore[assignment]
            return started

        async def json(self, **how: Any) -> Any:
            if self.status >= 400:
                return await super().json(**how)
            if (version := _taken(listed, self.url.path)) is not None:
                return {"metadata": {"resourceVersion": str(version), "continue": ""}, "items": []}
            text = bytearray()
            async for chunk in self.content.iter_any():
                text += chunk
                if len(text) > bounds.ANSWER_BYTES:
                    what = f"a list of more than {bounds.ANSWER_BYTES} bytes"
                    # of the two, kopf takes the first for a cut and lists again, and ends its watch for the second
                    raise aiohttp.ClientPayloadError(what) if too_long() else ValueError(what)
            try:
                page = bounds.Page.of(bytes(text))
            except msgspec.ValidationError:  # no list: what the API server serves, which kopf asks for first
                return msgspec.json.decode(text)
            return {
                "metadata": {"resourceVersion": page.metadata.version, "continue": page.metadata.more},
                "items": [bounds.read(bytes(item)) for item in page.items],
            }

    return BoundedResponse


def _taken(listed: MutableMapping[str | None, int], path: str) -> int | None:
    """The version of what is listed at a path, taken out."""
    services = _SERVICES.search(path)
    return listed.pop(services["namespace"], None) if services is not None else None


class _Lines:
    """A stream that passes on whole lines, each event within bounds."""

    def __init__(self, stream: aiohttp.StreamReader) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """The lines, each once it is whole. Raises ValueError at one that is no event, or too long for any object."""
        rest = b""
        async for chunk in self._stream.iter_chunked(size):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield bounds.for_others(line) + b"\n"
            if len(rest) > bounds.ANSWER_BYTES:
                raise ValueError(f"an event of more than {bounds.ANSWER_BYTES} bytes")
