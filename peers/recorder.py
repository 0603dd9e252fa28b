"""A pytest plugin: one JSON line for each test of a suite, in the file that --peers-log names."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--peers-log", type=Path)


class Recorder:
    """Writes a line as soon as a test has ended."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._reports: dict[str, list[pytest.TestReport]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reports = self._reports.setdefault(report.nodeid, [])
        reports.append(report)
        if report.when == "teardown":
            self._write(report.nodeid, *_outcome(reports), sum(one.duration for one in reports))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(report.nodeid, "failed", f"not collected: {_why(report)}", 0.0)

    def _write(self, test: str, outcome: str, why: str, seconds: float) -> None:
        with self._file.open("a") as lines:
            lines.write(json.dumps({"test": test, "outcome": outcome, "why": why, "seconds": round(seconds, 2)}) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    if (file := config.getoption("--peers-log")) is not None:
        config.pluginmanager.register(Recorder(file), "peers-recorder")


def _outcome(reports: list[pytest.TestReport]) -> tuple[str, str]:
    for report in reports:
        if report.failed:
            return "failed", _why(report)
    for report in reports:
        if report.skipped:
            return "skipped", str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return "passed", ""


def _why(report: Any) -> str:
    """The last line of the error, with the exception's name."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr)
    return " ".join(text.split())[:600]


def lines(file: Path) -> Iterator[dict[str, Any]]:
    """What a run wrote."""
    if file.exists():
        for line in file.read_text().splitlines():
            yield json.loads(line)
