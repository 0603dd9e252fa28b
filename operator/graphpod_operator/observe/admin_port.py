"""The pods' admin ports over HTTP.

The address is a template, because an operator outside the cluster, such as one on a laptop behind `kubectl proxy`,
cannot reach pod addresses.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import aiohttp

from graphpod_operator.cache.pod import Pod
from graphpod_operator.observe.warmup_poller import Unreachable
from graphpod_policy.http_limits import POD_UID_HEADER

DEFAULT_URL = "http://{ip}:8001"
"""Placeholders: {ip} (IPv6 in brackets), {namespace}, {name}."""

TIMEOUT = 2.0
"""Seconds one read may take."""
MAX_BYTES = 64 * 1024
TAKEN = (200, 202, 409)
"""Answers to an order: it is done, it will be, or the engine refuses it and says why on `/warmup`."""
SAID_BYTES = 200
"""Of the answer to an order that was not taken, for a message."""
METRICS_BYTES = 1024 * 1024
"""Of `/metrics`; an engine with the longest ladders writes 200 KiB."""


def _cause(error: Exception) -> str:
    """What went wrong, in few words: a condition has room for no more."""
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


class HttpAdminPort:
    """Reads admin ports with one client session."""

    def __init__(self, session: aiohttp.ClientSession, url: str = DEFAULT_URL) -> None:
        self._session = session
        self._url = url

    async def warmup(self, pod: Pod) -> bytes:
        """The body of `/warmup`: at most 64 KiB, within 2 s, no redirects. Raises Unreachable."""
        return await self._get(pod, "/warmup", MAX_BYTES)

    async def progress(self, pod: Pod) -> bytes:
        """The body of `/progress` of a pod that downloads weights: as above."""
        return await self._get(pod, "/progress", MAX_BYTES)

    async def metrics(self, pod: Pod) -> bytes:
        """The body of `/metrics`: at most 1 MiB, as above."""
        return await self._get(pod, "/metrics", METRICS_BYTES)

    async def order(self, pod: Pod, path: str) -> None:
        """A POST that the engine takes or refuses; `/warmup` reports what becomes of it. Raises Unreachable where it
        did neither: so does another pod that has the address now, because the order names the pod's uid.
        """
        url, status, body = await self._answer(pod, "POST", path, MAX_BYTES, {POD_UID_HEADER: pod.uid})
        if status not in TAKEN:
            said = body[:SAID_BYTES].decode(errors="replace").strip()
            raise Unreachable(f"pod {pod.name}: POST {url} answered {status}: {said}")

    async def _get(self, pod: Pod, path: str, most: int) -> bytes:
        url, status, body = await self._answer(pod, "GET", path, most)
        if status != 200:
            raise Unreachable(f"pod {pod.name}: {url} answered {status}; {_logs(pod)}")
        if len(body) > most:
            raise Unreachable(f"pod {pod.name}: {url} answered more than {most} bytes; {_logs(pod)}")
        return body

    async def _answer(
        self, pod: Pod, method: str, path: str, most: int, headers: Mapping[str, str] | None = None
    ) -> tuple[str, int, bytes]:
        """The URL that was asked, the status, and the body up to one byte more than `most`."""
        ip = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
        url = self._url.format(ip=ip, namespace=pod.namespace, name=pod.name) + path
        timeout = aiohttp.ClientTimeout(total=TIMEOUT)
        try:
            async with self._session.request(
                method, url, timeout=timeout, allow_redirects=False, headers=headers
            ) as response:
                body = await response.content.read(most + 1)
                while len(body) <= most and (more := await response.content.read(most + 1 - len(body))):
                    body += more
                status = response.status
        except TimeoutError as error:
            raise Unreachable(f"pod {pod.name}: no answer within {TIMEOUT:g} s from {url}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"pod {pod.name}: no answer from {url}: {_cause(error)}") from error
        return url, status, body


def _logs(pod: Pod) -> str:
    """The next step for a pod that answers: no NetworkPolicy is in the way."""
    return f"for the cause: kubectl -n {pod.namespace} logs {pod.name}"
