"""Every alert fires when it must and only then, as Prometheus itself evaluates it."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from monitoring.rules import ALERTS
from monitoring.rules.file import groups, render
from monitoring.rules.row import Alert
from tests.monitoring.cases import CASES
from tests.monitoring.cases.case import Case, Fired

FIRES_WITHOUT_SERIES = {"GraphpodOperatorDown"}
"""It is about a series that is absent."""
UNITS = {"s": 0, "m": 1, "h": 60}


def promtool_says(promtool: Path, *args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([promtool, *args], capture_output=True, text=True, timeout=300)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(render())
    return path


def test_promtool_accepts_the_rules(promtool: Path, rules: Path) -> None:
    done = promtool_says(promtool, "check", "rules", "--lint=all", "--lint-fatal", rules)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{sum(len(group['rules']) for group in groups())} rules found" in done.stdout


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_fires_when_it_must_and_only_then(alert: Alert, promtool: Path, tmp_path: Path) -> None:
    cases = [case for case in CASES if case.alert == alert.name]
    assert {case.fired is None for case in cases} == {True, False}, "it needs a case that fires and one that does not"
    if alert.name not in FIRES_WITHOUT_SERIES:
        cases.append(Case(alert.name, "there are no series", {}, 60))
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": _groups_with(alert)}))
    tests = tmp_path / "tests.yaml"
    tests.write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": [_test(alert, case) for case in cases]}))
    done = promtool_says(promtool, "test", "rules", tests)
    assert done.returncode == 0, done.stdout + done.stderr


def _groups_with(alert: Alert) -> list[dict[str, Any]]:
    """What is recorded, and this alert alone: Prometheus evaluates every rule it has each minute."""
    kept = (
        (group, [one for one in group["rules"] if one.get("alert", alert.name) == alert.name]) for group in groups()
    )
    return [group | {"rules": rules} for group, rules in kept if rules]


def _test(alert: Alert, case: Case) -> dict[str, Any]:
    """One of promtool's tests: at the case's minute, and before the alert's time has passed."""
    early = int(alert.lasts[:-1]) * UNITS[alert.lasts[-1]] - 1
    looks = [(case.at, case.fired), *([(early, None)] if early > 0 else [])]
    return {
        "name": f"{alert.name}: {case.title}",
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in case.series.items()],
        "alert_rule_test": [
            {
                "eval_time": f"{minute}m",
                "alertname": alert.name,
                "exp_alerts": [_expected(alert, fired)] if fired else [],
            }
            for minute, fired in looks
        ],
    }


def _expected(alert: Alert, fired: Fired) -> dict[str, Any]:
    assert fired.labels.keys() == set(alert.labels)
    (rule,) = [rule for group in groups() for rule in group["rules"] if rule.get("alert") == alert.name]
    return {
        "exp_labels": {**fired.labels, "severity": alert.severity.value},
        "exp_annotations": {**rule["annotations"], "summary": fired.summary},
    }
