"""A client that asks for first tokens, one request at a time, with as little work as a client can have."""

import json
import random
import socket
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

DONE = b"data: [DONE]"
LAST_CHUNK = b"0\r\n\r\n"
SMALL = 0.8
"""Of the vocabulary: the ids behind may be special."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What each request asks for: a prompt of so many `tokens` of a `vocabulary`, as ids or as about so much `text`,
    and an `answer` of so many. No two prompts begin alike, so none is in the prefix cache."""

    model: str
    tokens: int
    vocabulary: int
    answer: int
    text: bool

    def body(self, seed: int) -> bytes:
        """As JSON."""
        drawn = random.Random(seed)
        prompt: object = [drawn.randrange(int(SMALL * self.vocabulary)) for _ in range(self.tokens)]
        if self.text:
            prompt = f"{seed}" + " word7" * (self.tokens - 1)
        return json.dumps(
            {"model": self.model, "prompt": prompt, "max_tokens": self.answer, "stream": True, "temperature": 0,
             "ignore_eos": True}
        ).encode()  # fmt: skip


class Client:
    """One kept-alive connection."""

    def __init__(self, url: str, asked: Asked) -> None:
        address = urlsplit(url)
        self._asked, self._seed = asked, 0
        self._head = f"POST /v1/completions HTTP/1.1\r\nhost: {address.netloc}\r\ncontent-type: application/json\r\n"
        self._socket = socket.create_connection((address.hostname, address.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def first_token(self, pause: float) -> tuple[int, int]:
        """Asks once, after a pause in which the server that was asked before tidies up; time.perf_counter_ns() of the
        request and of the first event."""
        self._seed += 1
        body = self._asked.body(self._seed)
        request = f"{self._head}content-length: {len(body)}\r\n\r\n".encode() + body
        time.sleep(pause)
        began, came, seen = time.perf_counter_ns(), 0, b""
        self._socket.sendall(request)
        while not seen.endswith(LAST_CHUNK):
            data = self._socket.recv(1 << 16)
            if not came and b"data: " in data:
                came = time.perf_counter_ns()
            seen += data
            if not data or b"HTTP/1.1 200" not in seen:
                raise RuntimeError(f"no stream came: {seen[:400].decode(errors='replace')}")
        if DONE not in seen:
            raise RuntimeError(f"the stream ended early: {seen[-400:].decode(errors='replace')}")
        return began, came
