"""Many InferenceServices: made as fast as the API server takes them, and watched until each is Ready."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.operator_scale.bed import NAMESPACE
from stubs.engine.start_settings import ANNOTATIONS
from stubs.kubeconfig import Kubeconfig
from tests.places import service

WARMUP_SECONDS = "1"  # of each stub engine
AT_A_TIME = 8  # creates under way
WATCH_BYTES = 1 << 20
PATH = f"/apis/graphpod.dev/v1alpha1/namespaces/{NAMESPACE}/inferenceservices"


@dataclass
class Progress:
    """When each service was created and when it was Ready first, in seconds since the epoch."""

    created: dict[str, float] = field(default_factory=dict)
    ready: dict[str, float] = field(default_factory=dict)

    def waits(self) -> list[float]:
        """Seconds from create to Ready, ascending."""
        return sorted(self.ready[name] - self.created[name] for name in self.ready)


def manifest(name: str) -> dict[str, Any]:
    """A service of one replica with everything at its default."""
    return service(name, podTemplate={"annotations": {ANNOTATIONS["seconds"]: WARMUP_SECONDS}})


@asynccontextmanager
async def connected(kubeconfig: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """A session with the API server of a kubeconfig."""
    config = Kubeconfig.load(kubeconfig)
    headers = {"Authorization": f"Bearer {config.raw['users'][0]['user']['token']}"}
    connector = aiohttp.TCPConnector(ssl=config.tls(), limit=0)
    async with aiohttp.ClientSession(
        config.server, connector=connector, headers=headers, raise_for_status=True, read_bufsize=WATCH_BYTES
    ) as session:
        yield session


async def create(session: aiohttp.ClientSession, names: Sequence[str], progress: Progress) -> None:
    """Make these services."""
    waiting = iter(names)

    async def some() -> None:
        for name in waiting:
            progress.created[name] = time.time()
            async with session.post(PATH, json=manifest(name)) as answer:
                await answer.read()

    await asyncio.gather(*(some() for _ in range(AT_A_TIME)))


async def follow(session: aiohttp.ClientSession, progress: Progress) -> None:
    """Note when services become Ready, for ever."""
    async with session.get(PATH, params={"limit": "1"}) as answer:
        version = (await answer.json())["metadata"]["resourceVersion"]
    query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "3600"}
    async with session.get(PATH, params=query, timeout=aiohttp.ClientTimeout(total=None)) as answer:
        rest = b""
        async for chunk in answer.content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            for event in map(json.loads, lines):
                name = event["object"]["metadata"]["name"]
                if name not in progress.ready and _is_ready(event["object"]):
                    progress.ready[name] = time.time()


def _is_ready(found: dict[str, Any]) -> bool:
    rows = found.get("status", {}).get("conditions", ())
    return any((row["type"], row["status"]) == ("Ready", "True") for row in rows)
