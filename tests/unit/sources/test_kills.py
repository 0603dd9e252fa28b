"""The program killed at ten moments of one download, over and over: no finished file is loaded twice."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from graphpod_sources.problem import Exit
from stubs.hub import Hub, refusal
from stubs.web import Asked, Reply, WebStub
from tests.unit.sources.fetching import CONFIG, put, there

PARTS = {f"model-{number}.safetensors": os.urandom(400_000 + number) for number in range(5)}
MODEL = {"config.json": CONFIG, "tokenizer.json": b"{}", **PARTS}
KILLS = 10


class Killer:
    """A hub that kills its client at its n-th request of a run, while the answer is under way where that is large."""

    def __init__(self, folder: Path) -> None:
        self._hub, self._lock = Hub(folder), threading.Lock()
        self.victim: subprocess.Popen[str] | None = None
        self.deadly, self.requests, self.run = 0, 0, ""
        self.loads: list[str] = []

    def answer(self, asked: Asked) -> Reply:
        with self._lock:
            if asked.headers.get("authorization") != f"Bearer {self.run}":
                return Reply(410)  # sent by one that was killed since
            self.requests += 1
            if asked.path.startswith("/cdn/"):
                self.loads.append(asked.path.rpartition("/")[2])
            if self.requests == self.deadly and self.victim is not None:
                self.victim.send_signal(signal.SIGKILL)
                self.victim.wait()
        return self._hub.answer(asked)


def finished(folder: Path) -> set[str]:
    """Files that need not be loaded again."""
    journal = folder / ".partial/finished"
    lines = journal.read_text().split("\n")[:-1] if journal.exists() else []
    return {json.loads(line)[0] for line in lines}


def test_ten_kills_lose_nothing_that_was_finished(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    root.mkdir()
    put(tmp_path / "served/org/tiny/main", MODEL)
    killer = Killer(tmp_path / "served")
    kills, deadly = 0, 1
    with WebStub(killer.answer, refusal).serving() as stub:
        environment = {**os.environ, "HF_ENDPOINT": stub.url}
        command = [sys.executable, "-m", "graphpod_sources.cli", "hf://org/tiny", "--root", str(root)]
        command += ["--folder", "model", "--port", "0", "--credentials", str(tmp_path / "none")]
        for run in range(40):
            kept, killer.loads, killer.requests = finished(root / "model"), [], 0
            killer.deadly = deadly if kills < KILLS else 0
            killer.run = environment["HF_TOKEN"] = f"run-{run}"
            with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, text=True) as victim:
                killer.victim = victim
                code = victim.wait(60)
            assert not kept & set(killer.loads), "a finished file was asked for again"
            if code == Exit.Complete:
                break
            assert code == -signal.SIGKILL
            assert not (root / "model/.graphpod.json").exists()
            kills, deadly = kills + 1, deadly % 7 + 1
    assert kills == KILLS
    assert there(root / "model") == MODEL
