"""What an engine decided by itself, and leave to decide it."""

from graphpod_policy import OnCaptureFailure
from graphpod_runtime.engine.runner import Runner

DEGRADE = {"on_capture_failure": OnCaptureFailure.Degrade}


def rules(runner: Runner) -> list[tuple[str, str, str]]:
    """(rule, phase, outcome) of every decision taken by the engine itself."""
    return [
        (entry["rule"], entry["phase"], entry["outcome"])
        for entry in runner.report.as_dict()["decisions"]
        if entry["stage"] == "Engine"
    ]
