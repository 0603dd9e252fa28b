"""Clients that read so many streams to their end, with as little work as a client can have."""

import json
import re
import selectors
import socket
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

RECEIVE_BYTES = 1 << 18
TAIL_BYTES = 4096
SECONDS = 240.0


@dataclass(frozen=True, slots=True)
class Read:
    """What all streams carried together. `seconds`: from the first request to the last end."""

    tokens: int
    events: int
    seconds: float


def read(url: str, model: str, streams: int, tokens: int) -> Read:
    """Streams of so many tokens each, all at once. RuntimeError for one that did not end as it should."""
    address = urlsplit(url)
    body = json.dumps(
        {"model": model, "prompt": [1, 2, 3], "max_tokens": tokens, "stream": True, "temperature": 0,
         "stream_options": {"include_usage": True}}
    ).encode()  # fmt: skip
    head = f"POST /v1/completions HTTP/1.1\r\nhost: {address.netloc}\r\ncontent-type: application/json\r\n"
    request = f"{head}connection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
    events, tails = 0, dict[socket.socket, bytes]()
    with selectors.DefaultSelector() as selector:
        began = time.perf_counter()
        for _ in range(streams):
            client = socket.create_connection((address.hostname, address.port))
            client.sendall(request)
            selector.register(client, selectors.EVENT_READ)
            tails[client] = b""
        while selector.get_map():
            ready = selector.select(SECONDS)
            if not ready:
                raise RuntimeError(f"{len(selector.get_map())} streams sent nothing for {SECONDS:.0f} s")
            for key, _ in ready:
                client = key.fileobj
                data = client.recv(RECEIVE_BYTES)
                if data:
                    events += data.count(b"data: ")
                    tails[client] = (tails[client] + data)[-TAIL_BYTES:]
                else:
                    selector.unregister(client)
                    client.close()
        seconds = time.perf_counter() - began
    return Read(sum(map(_completed, tails.values())), events - 2 * streams, seconds)


def _completed(tail: bytes) -> int:
    """The tokens that the last event counts."""
    found = re.search(rb'"completion_tokens":(\d+)', tail)
    if found is None or b"data: [DONE]" not in tail:
        raise RuntimeError(f"a stream ended early: {tail[-400:].decode(errors='replace')}")
    return int(found[1])
