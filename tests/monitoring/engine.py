"""The engine on the demo's weights, and a load whose size is known."""

import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from openai import OpenAI

from tests.eventually import Eventually

NAME = "smollm2"
ROUNDS, CLIENTS, TOKENS = 6, 3, 24
"""Plain requests are ROUNDS × CLIENTS, each of TOKENS tokens."""
RETURNING = 12
"""Long prompts, each of some 500 tokens."""
SCHEMA = {
    "type": "object",
    "properties": {"sea": {"enum": ["calm", "rough"]}, "wind": {"enum": ["weak", "strong"]}},
    "required": ["sea", "wind"],
    "additionalProperties": False,
}
START_SECONDS = 900.0  # on a machine that does much else
WOKEN = 'sum(graphpod_sleep_transition_duration_seconds_count{transition="wake"})'
OF_RANKS = [("graphs", "Rows of experts, by rank"), ("graphs", "Host KV cache, by rank")]
"""Panels of engines with several ranks, which none of these has."""
LISTENS = re.compile(r"listening: http (\S+), admin (\S+)")


@dataclass(frozen=True)
class Engine:
    """Addresses of the two ports."""

    http: str
    admin: str


@contextmanager
def serving(model: Path, folder: Path, traces: str) -> Iterator[Engine]:
    """`graphpod-engine serve` with drafts, a host cache and sleep, Ready. `traces`: URL of a collector."""
    log = folder / "engine.log"
    words = ("serve", "--model", str(model), "--name", NAME, "--host", "127.0.0.1", "--max-model-len", "512")
    ports = ("--http-port", "0", "--admin-port", "0", "--termination-log", str(folder / "termination-log"))
    drafts = ("--speculative", "Ngram", "--drafts-max-batch", "8")
    more = (*drafts, "--otlp-endpoint", traces, "--host-cache", "64Mi", "--sleep")
    more += ("--host-cache-folder", str(folder / "pages"), "--host-cache-files", "64Mi")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "graphpod_runtime.cli", *words, *ports, *more], stdout=output, stderr=output
        )

    def ready() -> re.Match[str] | None:
        assert process.poll() is None, log.read_text()
        said = log.read_text()
        return LISTENS.search(said) if f"ready: {NAME}" in said else None

    try:
        found = Eventually(logs=[log])(ready, timeout=START_SECONDS)
        yield Engine(found[1], found[2])
    finally:
        process.terminate()
        process.wait(60)


@dataclass(frozen=True)
class Load:
    """What clients saw: answers in words, one for each choice, and all requests and choices that ended."""

    answers: int
    ended: int


def load(base: str) -> Load:
    """A few clients at a time; all are answered. Prompts of many lengths, two choices, grammars that come again, and
    vectors. `base`: the URL before /v1.
    """
    client = OpenAI(base_url=f"{base}/v1", api_key="none", timeout=120, max_retries=0)

    def ask(number: int) -> int:
        """How many answers came: one."""
        prompt = "One more sentence about the sea. " * (1 + 5 * (number % CLIENTS))
        stream = client.completions.create(
            model=NAME, prompt=prompt, max_tokens=TOKENS, temperature=0, stream=True, extra_body={"ignore_eos": True}
        )
        assert sum(len(event.choices) for event in stream) > 0  # read to the end
        return 1

    def bound(number: int) -> int:
        """How many answers came that follow the schema."""
        answer = client.chat.completions.create(
            model=NAME,
            messages=[{"role": "user", "content": f"How is the sea on day {number}?"}],
            response_format={"type": "json_schema", "json_schema": {"name": "sea", "schema": SCHEMA, "strict": True}},
            max_tokens=64,
            temperature=0,
            n=1 + number % 2,
        )
        assert {choice.finish_reason for choice in answer.choices} == {"stop"}
        return len(answer.choices)

    answers = vectors = 0
    with client, ThreadPoolExecutor(CLIENTS) as clients:
        for number in range(ROUNDS):
            numbers = range(number * CLIENTS, (number + 1) * CLIENTS)
            answers += sum((*clients.map(ask, numbers), *clients.map(bound, numbers)))
            vectors += len(client.embeddings.create(model=NAME, input=["The sea.", f"A ship, {number}."]).data)
    return Load(answers, answers + vectors)


def slept(engine: Engine) -> None:
    """It falls asleep and wakes, on command."""
    for command in ("sleep", "wake"):
        asked = urllib.request.Request(f"http://{engine.admin}/{command}?wait=300", method="POST")
        with urllib.request.urlopen(asked, timeout=310) as reply:
            assert reply.status == 200, reply.read()


def returning(base: str) -> None:
    """Long prompts, one at a time, and all of them again: a KV cache that holds few of them has those in host memory
    then. `base`: the URL before /v1."""
    with OpenAI(base_url=f"{base}/v1", api_key="none", timeout=120, max_retries=0) as client:
        for number in [*range(RETURNING), *range(RETURNING)]:
            prompt = f"Day {number}. " + "The sea was calm, and nobody spoke. " * 60
            client.completions.create(model=NAME, prompt=prompt, max_tokens=1)
