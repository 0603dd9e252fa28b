"""Reading many pods' admin ports at once by port-forward, with a limit for each and for all.

A pod that hangs holds up no other: those that did not answer last time are read last, and all reads end together.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from graphpod_operator.cache.pod import Pod
from graphpod_operator.kube.connection import Connection
from graphpod_operator.kube.port_forward import NoAnswer, get
from graphpod_operator.terminal.values.fields import printable

PORT = 8001
SECONDS = 4.0
"""One read may take."""
ALL_SECONDS = 8.0
"""All reads of one round may take."""
CONCURRENCY = 24
PODS = 200
"""Most pods that are read in one round; the others' rows say so."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A body, or (`trouble`) why there is none; `at` is when it came, in seconds of a steady clock."""

    body: bytes
    at: float
    trouble: str = ""


class AdminPorts:
    """The admin ports of pods, read in rounds."""

    def __init__(self, wire: Connection) -> None:
        self._wire = wire
        self._failed: set[str] = set()

    async def read(self, pods: Sequence[Pod], path: str, most: int) -> dict[str, Answer]:
        """What each pod answers, by uid: bodies of at most `most` bytes."""
        first = sorted(pods, key=lambda pod: pod.uid in self._failed)
        found: dict[str, Answer] = {
            pod.uid: Answer(b"", 0.0, f"not read: only {PODS} pods are") for pod in first[PODS:]
        }
        slots = asyncio.Semaphore(CONCURRENCY)

        async def one(pod: Pod) -> Answer:
            async with slots:
                try:
                    body = await get(self._wire, pod.namespace, pod.name, PORT, path, most, SECONDS)
                    return Answer(body, time.monotonic())
                except NoAnswer as error:
                    return Answer(b"", 0.0, printable(str(error)))

        reads = {pod.uid: asyncio.create_task(one(pod)) for pod in first[:PODS]}
        if reads:
            await asyncio.wait(reads.values(), timeout=ALL_SECONDS)
        for uid, read in reads.items():
            if not read.done():
                read.cancel()
                found[uid] = Answer(b"", 0.0, "not read: others took too long")
            else:
                found[uid] = read.result()
        await asyncio.gather(*reads.values(), return_exceptions=True)
        self._failed = {uid for uid, answer in found.items() if answer.trouble}
        return found
