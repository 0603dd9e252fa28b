"""The pods' admin ports over HTTP.

The address is a template, because an operator outside the cluster, such as one on a laptop behind `kubectl proxy`,
cannot reach pod addresses.
"""

from __future__ import annotations

import os

import aiohttp

from graphpod_operator.cache.pod import Pod
from graphpod_operator.observe.warmups import Unreachable

DEFAULT_URL = "http://{ip}:8001"
"""Placeholders: {ip} (IPv6 in brackets), {namespace}, {name}."""

TIMEOUT = 2.0
"""Seconds one read may take."""
MAX_BYTES = 64 * 1024


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
        ip = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
        url = self._url.format(ip=ip, namespace=pod.namespace, name=pod.name) + "/warmup"
        timeout = aiohttp.ClientTimeout(total=TIMEOUT)
        try:
            async with self._session.get(url, timeout=timeout, allow_redirects=False) as response:
                body = await response.content.read(MAX_BYTES + 1)
                while len(body) <= MAX_BYTES and (more := await response.content.read(MAX_BYTES + 1 - len(body))):
                    body += more
                status = response.status
        except TimeoutError as error:
            raise Unreachable(f"pod {pod.name}: no answer within {TIMEOUT:g} s from {url}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"pod {pod.name}: no answer from {url}: {_cause(error)}") from error
        if status != 200:
            raise Unreachable(f"pod {pod.name}: {url} answered {status}")
        if len(body) > MAX_BYTES:
            raise Unreachable(f"pod {pod.name}: {url} answered more than {MAX_BYTES} bytes")
        return body
