"""trustedrouter-provider-check: a command from the Python index that checks an OpenAI-compatible provider.

It runs in the environment of the clients (`.venv-clients`), whose lock pins it. Its sixth tier measures speed, and says
itself that no server fails by it.
"""

import json
import subprocess
from pathlib import Path

from graphpod_runtime.bench.serve.drive.own_engine import OwnEngine
from peers.adapter import Adapter
from peers.run import REPOSITORY, Case
from peers.settings import Settings

SOURCE = "trustedrouter-provider-check 0.1.8"
COMMAND = REPOSITORY / ".venv-clients" / "bin" / "trustedrouter-provider-check"
NAME = "smollm2"
TIER = "5"
SECONDS = 900.0
OUTCOMES = {"pass": "passed", "fail": "failed", "warn": "failed", "skip": "skipped"}
"""A warning is a failure here: the list of refusals has those that are about the model."""


def run(settings: Settings) -> list[Case]:
    """Every check of its first five tiers."""
    report = Path(settings.folder) / "report.json"
    with (
        OwnEngine(["serve", "--model", settings.weights, "--name", NAME, *settings.engine]) as engine,
        Adapter(_ready(engine), None, settings.cap) as adapter,
    ):
        done = subprocess.run(
            [COMMAND, "--base-url", f"{adapter.url}/v1", "--tier", TIER, "--json", report],
            capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip
    if not report.exists():
        return [Case("provider-check", "checks::(none)", "failed", (done.stdout + done.stderr)[-500:], 0.0)]
    return [
        Case("provider-check", f"checks::{row['id']}", OUTCOMES[row["status"]], _why(row), 0.0)
        for row in json.loads(report.read_text())["checks"]
    ]


def _ready(engine: OwnEngine) -> str:
    engine.ready()
    return engine.url


def _why(row: dict[str, object]) -> str:
    return "" if row["status"] == "pass" else f"{row['assertion']} {json.dumps(row['measured'])}"[:600]
