"""The table of rules: what it names exists, and the files in the tree are made from it."""

import re
import subprocess
from pathlib import Path

import pytest

from graphpod_operator.kube import lease
from graphpod_operator.telemetry import metrics as operator_metrics
from graphpod_policy import POSSIBLE_FALLBACKS
from graphpod_policy.metrics import ITL_SECONDS, METRICS, TTFT_SECONDS
from graphpod_runtime.wire.report import State
from monitoring.__main__ import ROOT, files
from monitoring.rules import ALERTS, GROUPS, RECORDINGS, graphs, objectives, operator
from monitoring.rules.row import Alert, Recording
from tests.unit.house.pages import Page
from tests.unit.monitoring.promql import RECORDED, unknown

FIELDS = set(re.findall(r"^\| `([^`]+)`", (ROOT / "docs/reference/api.md").read_text(), re.MULTILINE))


@pytest.mark.parametrize("path", files())
def test_the_file_in_the_tree_is_made_from_the_table(path: str) -> None:
    assert Path(ROOT / path).read_text() == files()[path], "run `make crd`"


@pytest.mark.parametrize("row", [*RECORDINGS, *ALERTS], ids=lambda row: row.name)
def test_a_rule_names_only_series_and_labels_that_are_exported(row: Alert | Recording) -> None:
    assert unknown(row.expr) == set()
    assert row.expr.count("(") == row.expr.count(")")


def test_a_recording_stands_before_what_reads_it() -> None:
    known: set[str] = set()
    for row in (row for group in GROUPS for row in group.rows):
        assert set(RECORDED.findall(row.expr)) <= known, row.name
        known |= {row.name} if isinstance(row, Recording) else set()


def test_names_are_unique() -> None:
    names = [row.name for group in GROUPS for row in group.rows] + [group.name for group in GROUPS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_says_what_is_wrong_with_which_object_and_what_to_do(alert: Alert) -> None:
    assert re.fullmatch(r"Graphpod[A-Z]\w+", alert.name)
    assert re.fullmatch(r"\d+[smh]", alert.lasts)
    assert set(re.findall(r"\$labels\.(\w+)", alert.summary)) <= set(alert.labels)
    for text in (alert.summary, alert.means, alert.step):
        assert text.endswith(".")
    assert alert.commands
    assert set(re.findall(r"\bspec\.[\w.]*\w", alert.step)) <= FIELDS


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_the_commands_of_an_alert_run_with_its_labels_alone(alert: Alert) -> None:
    text = "\n".join(alert.commands)
    assert set(re.findall(r"\$([A-Z]+)", text)) == alert.variables.keys(), "a variable that no label of the alert fills"
    assert not re.search(r"(?<!\$)\b(NAMESPACE|NAME|POD|KIND)\b", text)
    assert "graphpod-system" not in text, "another namespace is as good"
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=10)
    assert (done.returncode, done.stderr) == (0, "")
    for pattern in re.findall(r"grep -i? ?-E '([^']*)'", text):
        assert subprocess.run(["grep", "-E", pattern], input="", text=True, timeout=10).returncode == 1, pattern


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_a_forwarded_port_is_waited_for_and_closed(alert: Alert) -> None:
    for at, line in enumerate(alert.commands):
        if "port-forward" in line:
            assert line.endswith("> /dev/null &")
            assert "--retry-connrefused" in alert.commands[at + 1]
            assert alert.commands[at + 2] == "kill $!"


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_the_series_that_the_commands_look_for_are_exported(alert: Alert) -> None:
    for pattern in re.findall(r"/metrics \| grep -E '([^']*)'", "\n".join(alert.commands)):
        assert any(re.search(pattern, f'{metric.name}{{phase="decode"}} 1') for metric in METRICS), pattern


def test_every_alert_has_its_part_of_the_page() -> None:
    page = Page(ROOT / "docs/reference/alerts.md")
    assert {alert.anchor for alert in ALERTS} <= page.anchors


def test_words_in_selectors_are_those_of_the_engine_and_the_operator() -> None:
    assert set(graphs.UNEXPECTED) <= set(POSSIBLE_FALLBACKS)
    assert set(graphs.STARTING) == set(State) - {State.Ready, State.Failed}
    assert (operator.LEASE, operator.CONTROLLER) == (lease.NAME, operator_metrics.CONTROLLER)


def test_the_bounds_of_the_objectives_are_bounds_of_the_histograms() -> None:
    assert objectives.TTFT_BOUND in map(str, map(float, TTFT_SECONDS))
    assert objectives.ITL_BOUND in map(str, map(float, ITL_SECONDS))
