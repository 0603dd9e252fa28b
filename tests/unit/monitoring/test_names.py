"""Names of other engines' series: what the page says we export instead exists, with those labels."""

import re

import pytest

from graphpod_policy.metrics import BY_NAME, MOST_SERIES, Process
from monitoring.rules import ALERTS
from tests.unit.house.pages import ROOT

PAGE = (ROOT / "docs/how-to/migrate.md").read_text()
METRICS = PAGE.partition("## Metrics")[2]
ROWS = re.findall(r"^\| (?!vLLM|gateway|---)(.+?) \| (.+?) \|$", METRICS, re.MULTILINE)
SERIES = re.compile(r"`(graphpod_\w+)(?:\{(\w+(?:,\w+)*)\})?`")


@pytest.mark.parametrize(("theirs", "ours"), ROWS, ids=[theirs for theirs, _ in ROWS])
def test_what_takes_the_place_of_a_series_is_exported(theirs: str, ours: str) -> None:
    named = SERIES.findall(ours)
    assert named or "not built" in ours or "not exported" in ours, ours
    for name, labels in named:
        assert set(filter(None, labels.split(","))) <= set(BY_NAME[name].labels), name


def test_the_table_of_alerts_names_each_of_both_sides_once() -> None:
    table = PAGE.partition("## Alerts")[2].partition("## Metrics")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| ")][1:]
    theirs = [name for row in rows for name in re.findall(r"LLMD\w+", row[0])]
    ours = [name for row in rows for name in re.findall(r"Graphpod\w+", row[1])]
    assert (len(theirs), len(set(theirs))) == (23, 23)
    assert sorted(ours) == sorted(alert.name for alert in ALERTS)


def test_every_meaning_that_an_inference_gateway_reads_has_a_row() -> None:
    theirs = " ".join(row[0] for row in ROWS)
    for meaning in ("TotalQueuedRequests", "TotalRunningRequests", "KVCacheUtilization", "BlockSize", "NumGPUBlocks"):
        assert meaning in theirs


def test_the_page_of_metrics_states_the_bounds_that_are_tested() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text()
    for process in Process:
        assert str(MOST_SERIES[process]) in page
