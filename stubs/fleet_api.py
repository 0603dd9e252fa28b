"""The fleet's side of the Kubernetes API: one kind watched, one annotation written."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import aiohttp

from stubs.kubeconfig import Kubeconfig

log = logging.getLogger("stubs.fleet")

CONNECTIONS = 64
RETRY_SECONDS = 0.5
WATCH_SECONDS = 300

Pod = dict[str, Any]


class Change(StrEnum):
    """What the watch says of a pod."""

    Seen = "Seen"
    Gone = "Gone"
    Restart = "Restart"
    """Of none in particular: all that are there are reported again from here on."""


@dataclass(frozen=True, slots=True)
class Api:
    """The API server as the current user of a kubeconfig sees it."""

    session: aiohttp.ClientSession
    server: str

    @classmethod
    @asynccontextmanager
    async def connected(cls, kubeconfig: Path) -> AsyncIterator[Api]:
        config = Kubeconfig.load(kubeconfig)
        connector = aiohttp.TCPConnector(ssl=config.tls(), limit=CONNECTIONS)
        headers = {"Authorization": f"Bearer {_token(config.raw)}"}
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
            yield cls(session, config.server)

    async def config_map(self, namespace: str, name: str, key: str) -> bytes:
        """The bytes under a key. Raises aiohttp.ClientError, KeyError."""
        url = f"{self.server}/api/v1/namespaces/{namespace}/configmaps/{name}"
        async with self.session.get(url, raise_for_status=True) as answer:
            found = await answer.json()
        if key in found.get("data", {}):
            return str(found["data"][key]).encode()
        return base64.b64decode(found["binaryData"][key])

    async def annotate(self, pod: Pod, key: str, value: str) -> None:
        """Sets an annotation of this very pod; one that is gone, or another by now, is left alone."""
        metadata = pod["metadata"]
        patch = {"metadata": {"uid": metadata["uid"], "annotations": {key: value}}}
        url = f"{self.server}/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        headers = {"Content-Type": "application/merge-patch+json"}
        async with self.session.patch(url, json=patch, headers=headers) as answer:
            if answer.status not in (404, 409):
                answer.raise_for_status()

    async def pods(self, selector: str) -> AsyncIterator[tuple[Change, Pod]]:
        """Every change of the selected pods, for ever."""
        while True:
            try:
                async for change in self._pods_once(selector):
                    yield change
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                log.warning("watch of pods: %s %s; again in %g s", type(error).__name__, error, RETRY_SECONDS)
                await asyncio.sleep(RETRY_SECONDS)

    async def _pods_once(self, selector: str) -> AsyncIterator[tuple[Change, Pod]]:
        url, query = f"{self.server}/api/v1/pods", {"labelSelector": selector}
        async with self.session.get(url, params=query, raise_for_status=True) as answer:
            found = await answer.json()
        yield Change.Restart, {}
        for pod in found["items"]:
            yield Change.Seen, pod
        query |= {"watch": "1", "timeoutSeconds": str(WATCH_SECONDS)}
        query["resourceVersion"] = found["metadata"]["resourceVersion"]
        timeout = aiohttp.ClientTimeout(total=None, sock_read=2 * WATCH_SECONDS)
        async with self.session.get(url, params=query, timeout=timeout, raise_for_status=True) as answer:
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for event in map(json.loads, lines):
                    if event["type"] == "ERROR":  # too old: listed again
                        return
                    yield Change.Gone if event["type"] == "DELETED" else Change.Seen, event["object"]


def _token(raw: Any) -> str:
    context = next(entry["context"] for entry in raw["contexts"] if entry["name"] == raw["current-context"])
    return str(next(entry["user"]["token"] for entry in raw["users"] if entry["name"] == context["user"]))
