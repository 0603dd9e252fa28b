"""Clients that ask one service again and again, and a report of every question that was not answered."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

ANSWER_LIMIT = 60.0  # s
PAUSE = 0.5  # s between an answer and the next question
STREAMED = 64  # tokens of a stream: seconds, so that whatever happens meanwhile happens to one
DONE = "[DONE]"  # the last event of a stream, as OpenAI has it


class Client(Enum):
    """How a client treats its connection; a balancer sends each new connection to any pod."""

    Keeps = "keeps its connection while the server lets it"
    Renews = "opens a connection for each question"
    Streams = "opens a connection for each stream"


@dataclass(frozen=True)
class Question:
    """One question and what became of it."""

    client: Client
    at: float  # s since the traffic began
    took: float  # s
    text: str  # of the answer
    error: str  # "" when it was answered

    def __str__(self) -> str:
        return f"at {self.at:.1f} s, client that {self.client.value}, after {self.took:.1f} s: {self.error}"


@dataclass
class Traffic:
    """What was asked so far. Grows until its context ends."""

    questions: list[Question] = field(default_factory=list)

    @property
    def failed(self) -> list[Question]:
        return [one for one in self.questions if one.error]

    def texts(self, client: Client) -> set[str]:
        """The different answers to one kind of client; greedy text of one model is one."""
        return {one.text for one in self.questions if one.client is client and not one.error}

    def answered(self) -> int:
        """Answers so far to the client that has the fewest."""
        return min(sum(one.client is client and not one.error for one in self.questions) for client in Client)

    def told(self) -> str:
        longest = max((one.took for one in self.questions), default=0.0)
        counts = ", ".join(f"{sum(one.client is client for one in self.questions)} {client.name}" for client in Client)
        head = f"{len(self.questions)} questions ({counts}), {len(self.failed)} failures, at most {longest:.1f} s each"
        return "\n".join([head, *map(str, self.failed)])


@contextmanager
def asking(url: str, body: dict[str, Any]) -> Iterator[Traffic]:
    """One client of each kind posts `body` to `url` (OpenAI chat) until the context ends; none asks twice."""
    traffic, over, began = Traffic(), threading.Event(), time.monotonic()

    def ask_on(client: Client) -> None:
        connection = _connect(url)
        streamed = {"stream": True, "max_tokens": STREAMED} if client is Client.Streams else {}
        while not over.wait(PAUSE):
            at = time.monotonic()
            try:
                text, error = _ask(connection, url, body | streamed), ""
            except (OSError, HTTPException, ValueError) as e:  # each is a question without an answer
                text, error = "", f"{type(e).__name__}: {e}"
            if error or client is not Client.Keeps:
                connection.close()  # opened again by the next question
            traffic.questions.append(Question(client, at - began, time.monotonic() - at, text, error))

    threads = [threading.Thread(target=ask_on, args=(client,), daemon=True) for client in Client]
    for thread in threads:
        thread.start()
    try:
        yield traffic
    finally:
        over.set()
        for thread in threads:
            thread.join(ANSWER_LIMIT + PAUSE)


def _connect(url: str) -> HTTPConnection:
    host = urlsplit(url)
    return HTTPConnection(host.hostname or "", host.port, timeout=ANSWER_LIMIT)


def _ask(connection: HTTPConnection, url: str, body: dict[str, Any]) -> str:
    """The answer's text; ValueError with the server's words when it is another than 200, or a stream has no end."""
    connection.request("POST", urlsplit(url).path, json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    said = response.read().decode(errors="replace")
    if response.status != 200:
        raise ValueError(f"{response.status}: {said}")
    return _streamed(said) if body.get("stream") else str(json.loads(said)["choices"][0]["message"]["content"])


def _streamed(said: str) -> str:
    """The text of a whole stream: pieces, a finish reason, and the event that says it is over."""
    *events, last = [line.removeprefix("data: ") for line in said.splitlines() if line.startswith("data: ")] or [""]
    told = [json.loads(event) for event in events]
    choices = [choice for event in told for choice in event.get("choices", ())]
    if last != DONE or not any(choice.get("finish_reason") for choice in choices):
        raise ValueError(f"the stream broke off after {len(events)} events: {said[-300:]}")
    return "".join(choice["delta"].get("content") or "" for choice in choices)
