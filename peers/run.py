"""Runs files of a suite in a process of their own, against our server; what each test came to is read from its log."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from peers.recorder import lines
from peers.settings import Settings
from peers.source import Suite, lay

REPOSITORY = Path(__file__).resolve().parents[1]
PLUGINS = {"vllm": "peers.stand_in.plugin", "openai": "peers.openai_plugin"}
OPTIONS = {"vllm": "", "openai": "asyncio_mode = auto\nasyncio_default_fixture_loop_scope = session\n"}
"""Those of each project's own pytest settings that its tests need."""
LAST_LINES = 40


@dataclass(frozen=True, slots=True)
class Case:
    """One test: `outcome` is passed, failed or skipped, `why` the end of its error."""

    suite: str
    test: str
    outcome: str
    why: str
    seconds: float


def run(
    suite: Suite, tests: Sequence[str], settings: Settings, limit: float, more: Sequence[str] = ()
) -> tuple[list[Case], str]:
    """The cases of these tests (paths below the suite's root, or ids), and the end of pytest's output. A run that takes
    longer than `limit` seconds is ended; tests that it did not come to are missing.
    """
    with tempfile.TemporaryDirectory(prefix="graphpod-peers-") as folder:
        place = Path(folder)
        lay(suite, place, lambda line: print(line, file=sys.stderr))
        (place / "pytest.ini").write_text(f"[pytest]\n{OPTIONS[suite.name]}")
        log = place / "log.jsonl"
        plugins = ["-p", "no:cacheprovider", "-p", "peers.recorder", "-p", PLUGINS[suite.name]]
        command = [
            sys.executable, "-m", "pytest", "-c", "pytest.ini", "-q", "--tb=short", *plugins, "--peers-log", str(log),
            *more, *(f"tests/{test}" for test in tests),
        ]  # fmt: skip
        environment = os.environ | settings.as_environment() | {"PYTHONPATH": str(REPOSITORY), "HF_HUB_OFFLINE": "1"}
        with (place / "output").open("w+") as output:
            process = subprocess.Popen(command, cwd=place, env=environment, stdout=output, stderr=subprocess.STDOUT)
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                process.terminate()
                process.wait(60)
            output.seek(0)
            said = output.read().splitlines()
        prefix = "tests/"
        cases = [
            Case(suite.name, line["test"].removeprefix(prefix), line["outcome"], line["why"], line["seconds"])
            for line in lines(log)
        ]
        return cases, "\n".join(said[-LAST_LINES:])
