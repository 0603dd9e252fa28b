"""What hostile clients do with connections, each to its end; what comes back is judged by the caller."""

import http.client
import json
import socket
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from peers.fuzz.bodies import Drawn

SECONDS = 120.0
AT_ONCE = 8


class Wrong(Exception):
    """An answer that the server's own document does not have."""


def post_all(url: str, document: Mapping[str, Any], requests: Iterable[Drawn]) -> Counter[int]:
    """Sends every request; how many answers had which status. Wrong for a status that the document does not have, for
    500, and for an error without the error's form.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return Counter(pool.map(lambda one: _posted(url, document, one), requests))


def _posted(url: str, document: Mapping[str, Any], request: Drawn) -> int:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=SECONDS)
    try:
        connection.request("POST", request.path, request.body, request.headers)
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    known = document["paths"][request.path]["post"]["responses"]
    if str(answer.status) not in known or answer.status == 500:
        raise Wrong(f"{request.path} answered {answer.status}: {text[:300]!r} to {request.body[:2000]!r}")
    if answer.status >= 400 and not json.loads(text)["error"]["message"]:
        raise Wrong(f"{request.path} answered {answer.status} without a message to {request.body[:2000]!r}")
    return answer.status


def break_off_streams(url: str, body: Mapping[str, Any], count: int) -> None:
    """Streams whose client reads one byte more than the one before, and goes."""
    whole = _head(url, "/v1/completions", json.dumps({**body, "stream": True}).encode())
    for number in range(count):
        with _connected(url) as connection:
            connection.sendall(whole)
            left = number + 1
            while left and (piece := connection.recv(min(left, 4096))):
                left -= len(piece)


def send_slowly(url: str, body: Mapping[str, Any], count: int) -> int:
    """Clients that send a byte of their request and wait, all at once; how many connections stood."""
    whole = _head(url, "/v1/completions", json.dumps(body).encode())
    connections = [_connected(url) for _ in range(count)]
    try:
        for at in range(12):
            for connection in connections:
                connection.send(whole[at : at + 1])
        return len(connections)
    finally:
        for connection in connections:
            connection.close()


def hold_connections(url: str, count: int) -> Counter[str]:
    """So many connections at once, each of which asks for /health; what they got. A server answers
    those beyond its bound 503, or closes them.
    """
    request = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
    connections: list[socket.socket] = []
    found: Counter[str] = Counter()
    try:
        connections.extend(_connected(url) for _ in range(count))
        for connection in connections:
            try:
                connection.sendall(request)
                found[connection.recv(64).split(b"\r\n")[0].decode(errors="replace") or "closed"] += 1
            except OSError:
                found["closed"] += 1
    finally:
        for connection in connections:
            connection.close()
    return found


def _connected(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((str(parts.hostname), parts.port), SECONDS)


def _head(url: str, path: str, body: bytes) -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"host: {urlsplit(url).netloc}", "content-type: application/json"]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body
