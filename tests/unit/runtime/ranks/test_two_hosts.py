"""The commands of two machines, each in a network of its own: an answer over both, and what ends one ends the other.

`make ranks` runs it: it needs root, for the networks, and its processes import torch four times.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from graphpod_policy import ExitCode
from tests.eventually import Eventually
from tests.unit.runtime.front.test_real_engine import greedy, write_llama

pytestmark = pytest.mark.slow

LEADER = "10.215.7.1:29500"
NETWORKS = {"0": "10.215.7.1", "1": "10.215.7.2"}
PROMPT, TOKENS = "The capital of France is", 8
START = 240.0
ASK = """
import json, sys, urllib.request as u
request = u.Request(sys.argv[1], sys.argv[2].encode(), {"content-type": "application/json"})
print(json.load(u.urlopen(request, timeout=60))["choices"][0]["text"], end="")
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@dataclass(frozen=True)
class Machine:
    """A network of its own, and what runs there."""

    name: str
    log: Path

    @property
    def inside(self) -> list[str]:
        return ["ip", "netns", "exec", self.name]

    def serve(self, *words: str) -> "subprocess.Popen[bytes]":
        command = [*self.inside, sys.executable, "-m", "graphpod_runtime.cli", "serve", *words]
        with self.log.open("wb") as output:
            return subprocess.Popen(command, stdout=output, stderr=output)

    def said(self) -> str:
        return self.log.read_text()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[list[Machine]]:
    names = [f"gp-{os.getpid()}-{index}" for index in NETWORKS]
    links = [f"gp{os.getpid() % 100000}{index}" for index in NETWORKS]
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", links[0], "netns", names[0], "type", "veth", "peer", "name", links[1], "netns", names[1])
        for name, link, address in zip(names, links, NETWORKS.values(), strict=True):
            ip("-n", name, "address", "add", f"{address}/24", "dev", link)
            for device in ("lo", link):
                ip("-n", name, "link", "set", device, "up")
        yield [Machine(name, tmp_path / f"{name}.log") for name in names]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def rank_process(of: int) -> int:
    """The process of rank 1, which is a child of the worker's."""
    found = subprocess.run(["pgrep", "-P", str(of)], capture_output=True, text=True, check=True).stdout.split()
    (rank,) = [int(one) for one in found if b"ranks.process" in Path(f"/proc/{one}/cmdline").read_bytes()]
    return rank


@pytest.mark.parametrize("fault", ["drained", "rank", "worker"])
def test_two_hosts_answer_and_end_together(
    machines: list[Machine], tmp_path: Path, eventually: Eventually, fault: str
) -> None:
    (folder := tmp_path / "model").mkdir()
    model = write_llama(folder)
    leader, worker = machines
    eventually.logs += [leader.log, worker.log]
    shared = ("--model", str(folder), "--device", "cpu", "--max-model-len", "128", "--pipeline-parallel", "2")
    shared += ("--nodes", "2", "--leader", LEADER, "--prefill", "Breakable", "--decode", "Full", "--max-batch", "2")
    logs = [str(tmp_path / f"termination-{index}") for index in NETWORKS]
    second = worker.serve(*shared, "--node-index", "1", "--termination-log", logs[1])
    eventually(lambda: f"waiting for the leader's machine at {LEADER}" in worker.said(), timeout=60)
    first = leader.serve(*shared, "--termination-log", logs[0])
    try:
        eventually(lambda: "ready: model" in leader.said(), timeout=START)
        body = {"model": "model", "prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0}
        ask = [*leader.inside, sys.executable, "-c", ASK, "http://127.0.0.1:8000/v1/completions", json.dumps(body)]
        said = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
        assert said == greedy(model, PROMPT, TOKENS)

        if fault == "drained":
            second.terminate()  # it waits for the leader's
            first.terminate()
            assert (first.wait(60), second.wait(60)) == (ExitCode.Drained, ExitCode.Drained)
            return
        os.kill(rank_process(second.pid) if fault == "rank" else second.pid, signal.SIGKILL)
        assert first.wait(30) == ExitCode.RankDied
        words = {
            "rank": r"RankDied: rank 1 of 2 \(stage 2 of 2\) has ended at Ready: signal SIGKILL",
            "worker": r"RankDied: (machine 1 of 2 \(10\.215\.7\.2\) has gone, with rank 1|rank 1 of 2 .*)",
        }[fault]
        assert re.match(words, Path(logs[0]).read_text())
        assert second.wait(30) == (ExitCode.RankDied if fault == "rank" else -signal.SIGKILL)
    finally:
        for process in (first, second):
            process.kill()
            process.wait()
