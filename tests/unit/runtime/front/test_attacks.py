"""Fifty bad requests at once: probes keep answering, memory stays bounded, and nothing of them stays behind."""

import concurrent.futures
import json
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from graphpod_policy.http_limits import HttpLimits

from .conftest import Front
from .test_openai import CHAT, TEXT, say

AT_ONCE = 50
LIMITS = HttpLimits()
MEGABYTES = (LIMITS.body_bytes - 1000) // 2


def peak(front: Front) -> int:
    """Bytes of the front process's largest resident set."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{front.process.pid}/status").read_text())
    assert found
    return int(found[1]) << 10


class Prober:
    """Asks /livez all the time, in a thread, and keeps what it answers."""

    def __init__(self, front: Front) -> None:
        self._front, self._stop = front, threading.Event()
        self.answers: Counter[int] = Counter()
        self._thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        while not self._stop.is_set():
            self.answers[self._front.get("/livez").status_code] += 1

    def __enter__(self) -> "Prober":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def all_at_once(front: Front, path: str, bodies: list[bytes]) -> list[httpx2.Response]:
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(lambda body: front.post(path, body), bodies))


def nothing_is_left(front: Front) -> None:
    for name in ("graphpod_kv_cache_usage_ratio", "graphpod_requests_running", "graphpod_requests_waiting"):
        front.eventually(f"{name} is 0", lambda name=name: front.metric(name) == 0)  # type: ignore[misc]
    assert front.post(TEXT, {"model": "echo", "prompt": "ab"}).status_code == 200


def documented(response: httpx2.Response) -> bool:
    """A refusal that says why, or a 503 that says when to come back."""
    assert response.json()["error"]["message"]
    return response.status_code in (400, 413) or (response.status_code, response.headers["retry-after"]) == (503, "1")


def test_fifty_prompts_of_four_megabytes(own_front: Callable[..., Front]) -> None:
    front = own_front(max_model_len=2048)
    assert front.post(CHAT, say("x")).status_code == 200
    before = peak(front)
    body = json.dumps(say("x " * MEGABYTES)).encode()
    with Prober(front) as prober:
        responses = all_at_once(front, CHAT, [body] * AT_ONCE)
    assert all(map(documented, responses)), Counter(response.status_code for response in responses)
    codes = Counter(response.json()["error"]["code"] for response in responses)
    assert codes.keys() <= {"context_length_exceeded", "queue_full", "bodies_full"}
    assert codes["context_length_exceeded"] > 0
    assert (set(prober.answers), prober.answers[200] > 0) == ({200}, True)
    # A body exists as bytes, as JSON and as text.
    assert peak(front) - before < 4 * LIMITS.bodies_bytes
    nothing_is_left(front)


BAD: dict[str, tuple[str, Any]] = {
    "a list of many lists": (TEXT, {"model": "echo", "prompt": [[1]] * 50_000}),
    "too many token ids": (TEXT, {"model": "echo", "prompt": [1] * 300_000}),
    "ten thousand turns": (CHAT, {"model": "echo", "messages": [{"role": "user", "content": ""}] * 10_000}),
    "parts of an unknown kind": (CHAT, say("x") | {"messages": [{"role": "user", "content": [{"type": "t"}] * 9000}]}),
    "stop strings of 100 kB": (CHAT, say("x", stop=["ab" * 50_000] * 16)),
    "log-probabilities of everything": (TEXT, {"model": "echo", "prompt": "x" * 90_000, "echo": True, "logprobs": 20}),
    "a deep body": (CHAT, b'{"a":' * 50_000),
    "deep variables": (CHAT, b'{"model":"echo","messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"a":'
                       + b"[" * 900 + b"]" * 900 + b"}}"),
    "a text of quotes without an end": (CHAT, b'{"a":"' + b'\\"' * 200_000),
    "the largest numbers": (TEXT, b'{"model":"echo","prompt":[' + b"1e308," * 300_000 + b"1]}"),
    "objects that nobody reads": (CHAT, say("x", metadata=[{}] * 70_000)),
    "a part of many fields": (CHAT, say([{"type": "text", "text": ""} | {f"k{at}": 1 for at in range(20_000)}])),
    "control tokens": (CHAT, say("<end>" * 60_000)),
    "a thousand unknown fields": (CHAT, say("x", **{f"field{number}": 1 for number in range(1000)}, typical_p=0.5)),
}  # fmt: skip


@pytest.mark.parametrize(("path", "body"), BAD.values(), ids=BAD)
def test_fifty_bad_bodies(front: Front, path: str, body: Any) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    with Prober(front) as prober:
        responses = all_at_once(front, path, [content] * AT_ONCE)
    assert all(map(documented, responses)), Counter(response.status_code for response in responses)
    assert set(prober.answers) == {200}
    nothing_is_left(front)


def test_streams_that_are_cut_and_readers_that_read_nothing(front: Front) -> None:
    address = urlsplit(front.http)
    body = json.dumps({"model": "echo", "prompt": "ab", "ignore_eos": True, "max_tokens": 190_000, "stream": True})
    head = f"POST {TEXT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    for _ in range(3):
        connections = [socket.create_connection((address.hostname, address.port)) for _ in range(AT_ONCE)]
        for number, connection in enumerate(connections):
            # Some never finish their request, most never read their answer.
            connection.sendall((head + body[: len(body) - (number % 3 == 0)]).encode())
        front.eventually("some run", lambda: front.metric("graphpod_requests_running") > 0)
        for connection in connections:
            connection.close()
        nothing_is_left(front)
    assert front.metric("graphpod_http_requests_total", code="500") == 0
