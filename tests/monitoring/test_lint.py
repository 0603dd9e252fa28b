"""Grafana's own linter accepts the dashboards; what it is told to leave out is needed, and says why."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from monitoring.__main__ import ROOT
from monitoring.boards import BOARDS
from testbed.binaries.golang import binary, build

pytestmark = pytest.mark.slow
CONFIG = ROOT / "monitoring/boards/dashboard-linter.yaml"
EXCLUSIONS = yaml.safe_load(CONFIG.read_text())["exclusions"]
FILES = {board.title: ROOT / f"charts/graphpod/files/dashboards/{board.name}.json" for board in BOARDS}
ENTRIES = [
    (rule, entry)
    for rule, said in EXCLUSIONS.items()
    for entry in said.get("entries", [{"dashboard": BOARDS[0].title}])
]


@pytest.fixture(scope="session")
def linter() -> Path:
    build(["dashboard-linter"])
    return binary("dashboard-linter")


def lint(linter: Path, dashboard: Path, config: Path) -> subprocess.CompletedProcess[str]:
    words = [linter, "lint", "--strict", "--config", config, dashboard]
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("title", FILES)
def test_the_linter_finds_nothing_but_what_is_excluded(title: str, linter: Path) -> None:
    done = lint(linter, FILES[title], CONFIG)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("rule", "entry"), ENTRIES, ids=lambda value: value if isinstance(value, str) else "")
def test_an_exclusion_has_a_reason_and_is_needed(
    rule: str, entry: dict[str, str], linter: Path, tmp_path: Path
) -> None:
    assert EXCLUSIONS[rule]["reason"].endswith(".")
    others = {name: {**said} for name, said in EXCLUSIONS.items() if name != rule}
    if left := [one for one in EXCLUSIONS[rule].get("entries", []) if one != entry]:
        others[rule] = {"entries": left}
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"exclusions": others}))
    done = lint(linter, FILES[entry["dashboard"]], config)
    assert done.returncode != 0
    assert entry.get("panel", "") in re.sub(r"\(Excluded\).*", "", done.stdout)


def test_the_linter_refuses_a_dashboard_that_it_cannot_read(linter: Path, tmp_path: Path) -> None:
    """Of schema v2: this build has no reader for it."""
    dashboard = tmp_path / "v2.json"
    dashboard.write_text('{"apiVersion": "dashboard.grafana.app/v2", "kind": "Dashboard", "spec": {"title": "new"}}')
    done = lint(linter, dashboard, CONFIG)
    assert done.returncode != 0
    assert "reads the classic schema only" in done.stderr
