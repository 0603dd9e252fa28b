"""One GET on a port of a pod, through the API server's `pods/portforward`.

The subresource is a WebSocket of `v4.channel.k8s.io`: each message begins with its channel's number. Channel 0 carries
the bytes of one TCP connection to the pod, channel 1 the kubelet's words about what went wrong. Each channel begins
with the port, two bytes. Kubernetes asks for `get` (the WebSocket is a GET) and, from 1.35 on, also for `create`.

What answers is a pod, which may be anything: its answer is bounded in size and time.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import suppress
from http.client import HTTPException, HTTPResponse

import aiohttp

from graphpod_operator.kube.cluster import ApiError
from graphpod_operator.kube.connection import Connection

PROTOCOL = "v4.channel.k8s.io"
DATA, ERROR = 0, 1
"""Channels of the first port."""
PORT_BYTES = 2
"""The port's number, which each channel begins with."""
MESSAGE_BYTES = 1 << 20
"""The longest message that is taken; the kubelet sends 32 KiB at a time."""
HEAD_BYTES = 16 * 1024
"""Of a status line and headers. An engine's have 200."""
SAID = 160
"""Characters of the kubelet's words that are kept."""


class NoAnswer(Exception):
    """The port gave no answer that can be used; the message says why, without the pod's name."""


class ForwardDenied(NoAnswer):
    """The user may not open a port-forward to the pod."""


async def get(wire: Connection, namespace: str, pod: str, port: int, path: str, most: int, seconds: float) -> bytes:
    """The body of a 200 to a GET of `path`: at most `most` bytes, within so many seconds. Raises NoAnswer."""
    try:
        async with asyncio.timeout(seconds):
            return await _get(wire, f"/api/v1/namespaces/{namespace}/pods/{pod}/portforward", port, path, most)
    except TimeoutError as error:
        raise NoAnswer(f"no answer within {seconds:g} s") from error
    except ApiError as error:
        if error.status in (401, 403):
            raise ForwardDenied("you may not port-forward to it (needs get and create of pods/portforward)") from error
        raise NoAnswer(f"no port-forward: {str(error)[:SAID]}") from error


async def _get(wire: Connection, tunnel: str, port: int, path: str, most: int) -> bytes:
    request = f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\nAccept: text/plain, */*\r\n\r\n"
    answer = bytearray()
    async with wire.websocket(tunnel, {"ports": str(port)}, PROTOCOL, MESSAGE_BYTES) as socket:
        with suppress(ConnectionError):  # the kubelet closed it already; what it said of the port is still to be read
            await socket.send_bytes(bytes([DATA]) + request.encode("ascii"))
        async for data in _data(socket, port):
            answer += data
            if len(answer) > most + HEAD_BYTES:
                raise NoAnswer(f"{path} has more than {most // 1024} KiB")
            if is_whole(answer):
                break
    if not answer:
        raise NoAnswer(f"{path}: the connection closed without an answer")
    return body(bytes(answer), path, most)


async def _data(socket: aiohttp.ClientWebSocketResponse, port: int) -> AsyncIterator[bytes]:
    """What the pod sends, until it or the kubelet closes. Raises NoAnswer with the kubelet's words."""
    skip = {DATA: PORT_BYTES, ERROR: PORT_BYTES}
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data or message.data[0] not in skip:
            continue
        channel, data = message.data[0], message.data[1:]
        left = skip[channel]
        skip[channel], data = max(0, left - len(data)), data[left:]
        if not data:
            continue
        if channel == ERROR:
            words = data.decode(errors="replace")
            raise NoAnswer(f"nothing listens on port {port}" if "refused" in words else words[-SAID:])
        yield data


def is_whole(answer: bytes | bytearray) -> bool:
    """Whether an HTTP answer is complete by its Content-Length. Without one it ends with the connection."""
    end = answer.find(b"\r\n\r\n")
    if end < 0:
        return False
    for line in bytes(answer[:end]).lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length" and value.strip().isdigit() and len(value) < 20:
            return len(answer) - end - 4 >= int(value)
    return False


def body(answer: bytes, path: str, most: int) -> bytes:
    """The body of an HTTP answer. Raises NoAnswer unless it is a whole 200 of at most `most` bytes."""
    response = HTTPResponse(_Received(answer))  # type: ignore[arg-type]
    try:
        response.begin()
        text = response.read(most + 1)
    except (HTTPException, ValueError, OSError) as error:
        raise NoAnswer(
            f"{path}: what answered is no HTTP server: {str(error)[:SAID] or type(error).__name__}"
        ) from error
    if response.status != 200:
        raise NoAnswer(f"{path} answered {response.status}")
    if len(text) > most:
        raise NoAnswer(f"{path} has more than {most // 1024} KiB")
    if response.length:
        raise NoAnswer(f"{path} ended {response.length} bytes early")
    return text


class _Received:
    """What has come of an answer, as the standard library's parser takes a socket."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def makefile(self, mode: str) -> io.BytesIO:
        """The bytes, as a file."""
        return io.BytesIO(self._answer)
