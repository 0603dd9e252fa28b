"""The engine on the demo's weights, and a load whose size is known."""

import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from openai import OpenAI

from tests.eventually import Eventually

NAME = "smollm2"
ROUNDS, CLIENTS, TOKENS = 6, 3, 24
"""Requests are ROUNDS × CLIENTS, each of TOKENS tokens."""
ALL_TOKENS = ROUNDS * CLIENTS * TOKENS
START_SECONDS = 300.0
LISTENS = re.compile(r"listening: http (\S+), admin (\S+)")


@dataclass(frozen=True)
class Engine:
    """Addresses of the two ports."""

    http: str
    admin: str


@contextmanager
def serving(model: Path, folder: Path) -> Iterator[Engine]:
    """`graphpod-engine serve`, Ready."""
    log = folder / "engine.log"
    words = ("serve", "--model", str(model), "--name", NAME, "--host", "127.0.0.1", "--max-model-len", "512")
    ports = ("--http-port", "0", "--admin-port", "0", "--termination-log", str(folder / "termination-log"))
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "graphpod_runtime.cli", *words, *ports], stdout=output, stderr=output
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


def load(engine: Engine) -> None:
    """A few clients at a time, with prompts of many lengths; all are answered."""
    client = OpenAI(base_url=f"http://{engine.http}/v1", api_key="none", timeout=120, max_retries=0)

    def ask(number: int) -> int:
        prompt = "One more sentence about the sea. " * (1 + 5 * (number % CLIENTS))
        stream = client.completions.create(
            model=NAME, prompt=prompt, max_tokens=TOKENS, temperature=0, stream=True, extra_body={"ignore_eos": True}
        )
        return sum(len(event.choices) for event in stream)

    with client, ThreadPoolExecutor(CLIENTS) as clients:
        for number in range(ROUNDS):
            assert all(clients.map(ask, range(number * CLIENTS, (number + 1) * CLIENTS)))
