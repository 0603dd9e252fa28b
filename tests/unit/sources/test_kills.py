"""The program killed at ten moments of one download, over and over: no finished file is loaded twice."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphpod_sources.listing import Listing, RemoteFile
from graphpod_sources.problem import Exit
from graphpod_sources.progress import Progress
from graphpod_sources.transfer import download
from graphpod_sources.transfer.patience import Patience
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


class Watched:
    """A source of one file that looks at the journal before each chunk that it gives."""

    def __init__(self, content: bytes, folder: Path) -> None:
        self.content, self.folder, self.kept = content, folder, list[int]()

    def listing(self) -> Listing:
        raise AssertionError("nobody asks")

    def read(self, file: RemoteFile, start: int, end: int | None) -> Iterator[memoryview]:
        for at in range(start, end or len(self.content), 1000):
            (journal,) = self.folder.glob(".partial/*.journal")
            _, *spans = journal.read_text().splitlines()
            self.kept.append(sum(int(end) - int(begin) for begin, end in map(str.split, spans)))
            yield memoryview(self.content[at : at + 1000])


@pytest.mark.parametrize(("seconds", "kept"), [(0.0, [0, 1000, 2000, 3000]), (3600.0, [0, 0, 0, 0])])
def test_what_came_of_a_piece_is_kept_before_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, kept: list[int]
) -> None:
    """On a slow line a piece takes minutes, and a kill would cost all of them."""
    monkeypatch.setattr(download, "KEEP_SECONDS", seconds)
    source, progress = Watched(bytes(4000), tmp_path), Progress()
    file = RemoteFile("model.safetensors", 4000, "model.safetensors", etag="one")
    work = download.Download(
        source, tmp_path, progress, Patience(5.0, progress, threading.Event()), lambda: None, connections=1
    )
    work.run([file])
    assert source.kept == kept
