"""`bench serve --model`: our own engine and front, started for the run; a tiny random model on the CPU."""

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest

from graphpod_runtime import cli
from graphpod_runtime.base.process.command import MODULE
from graphpod_runtime.bench.serve import command
from graphpod_runtime.bench.serve.drive import own_engine
from graphpod_runtime.bench.serve.figures.report import read
from graphpod_runtime.cli import main
from tests.forked import Forked
from tests.unit.runtime.front.conftest import engine_fork
from tests.unit.runtime.front.test_real_engine import write_llama

ROWS = """
streams  --concurrency 3 --requests 6 --input 5-20 --output 6 --prefix 16
sampled  --rate 20 --requests 6 --input 8 --output 5 --temperature 0.8 --cancel 0.5 --cancel-after 2
chat     --concurrency 1 --requests 2 --turns 2 --input 12 --next-input 3 --output 4
schema   --concurrency 2 --requests 2 --input 8 --output 30 --json-schema
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A folder with weights and a tokenizer of one token a byte."""
    folder = tmp_path / "tiny"
    write_llama(folder)
    return folder


@pytest.fixture
def without_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is a fork of this process, which has imported torch."""

    def popen(command: list[str], *, stdout: IO[str], stderr: int, env: dict[str, str]) -> Forked:
        assert command[:4] == [*MODULE, cli.__name__]
        assert stderr == subprocess.STDOUT
        return engine_fork(command[4:], env, stdout)

    with_forks = SimpleNamespace(Popen=popen, STDOUT=subprocess.STDOUT, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(own_engine, "subprocess", with_forks)


@pytest.mark.usefixtures("without_imports")
def test_a_suite_runs_against_our_own_engine(tiny: Path, tmp_path: Path) -> None:
    rows, out = tmp_path / "rows", tmp_path / "out.json"
    rows.write_text(ROWS)
    words = ["--serve", "--max-model-len 256 --max-batch 4", "--suite", str(rows), "--json", str(out)]
    assert main(["bench", "serve", "--model", str(tiny), *words]) == 0
    found = read(out)
    assert found.server.version.startswith("graphpod ")
    assert found.server.command == "graphpod-engine serve --model tiny --max-model-len 256 --max-batch 4"
    assert len(found.server.starts) == 1
    streams, sampled, chat, schema = (row.parts[0].seen for row in found.rows)
    assert (streams.completed, streams.failed, streams.output_tokens) == (6, 0, 36)
    assert 6 * (16 + 5) <= streams.input_tokens <= 6 * (16 + 20)
    assert (sampled.completed + sampled.cancelled, sampled.failed) == (6, 0)
    assert chat.completed == 4
    assert (schema.completed, schema.output_tokens) == (2, 60)
    assert [turn.count for turn in chat.turn_ttft if turn] == [2, 2]
    for seen in (streams, chat):
        assert seen.ttft is not None
        assert seen.ttft.p50 > 0
        assert seen.without_usage == 0


@pytest.mark.usefixtures("without_imports")
def test_an_engine_that_cannot_start_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    (folder / "config.json").write_text('{"vocab_size": 300}')
    assert main(["bench", "serve", "--model", str(folder), "--requests", "1"]) == command.INCOMPLETE
    assert "the engine ended with code" in capsys.readouterr().err
