"""What an expression names, held against the metric table."""

import re

from graphpod_policy.metrics import BY_NAME
from monitoring.rules import RECORDINGS
from tests.unit.house.pages import ROOT

SERIES = re.compile(
    r"(?<![\w:])((?:graphpod|workqueue|controller_runtime|leader_election|rest_client|process|DCGM_FI)_\w+)(\{[^}]*\})?"
)
RECORDED = re.compile(r"\bservice:\w+:\w+")
GROUPED = re.compile(r"\b(?:by|on|group_left) \(([^)]*)\)")
OF_SCRAPING = {"namespace", "pod", "inferenceservice", "job", "instance", "le"}
"""Labels that a series gets by being scraped, and that of a histogram's buckets."""


DCGM = ROOT / "tests/monitoring/dcgm.prom"
"""What dcgm-exporter exports: its names, and the labels of each."""
OF_OTHERS = {
    **dict(re.findall(r"^(DCGM_FI_\w+)\{(.*)\}", DCGM.read_text(), re.MULTILINE)),
    **dict.fromkeys(("process_start_time_seconds", "process_resident_memory_bytes", "process_cpu_seconds_total"), ""),
}
"""Series of other exporters, with their labels."""


def labels_of(name: str) -> set[str]:
    """The labels of a series. KeyError if nothing exports it."""
    if name in OF_OTHERS:
        return set(re.findall(r"(\w+)=", OF_OTHERS[name]))
    return set(BY_NAME[metric(name)].labels)


def metric(name: str) -> str:
    """The table's name of a series."""
    return name if name in BY_NAME else re.sub(r"_(bucket|sum|count)$", "", name)


def unknown(expr: str) -> set[str]:
    """Labels that no series of the expression has. KeyError for a series that is not exported."""
    carried, missing = set(OF_SCRAPING), set()
    for name, selector in SERIES.findall(expr):
        labels = {*labels_of(name), *OF_SCRAPING}
        missing |= set(re.findall(r"(\w+) *(?:=~|!~|!=|=)", selector)) - labels
        carried |= labels
    recorded = {recording.name: recording.labels for recording in RECORDINGS}
    for name in RECORDED.findall(expr):
        carried |= set(recorded[name])
    return missing | {label.strip() for labels in GROUPED.findall(expr) for label in labels.split(",")} - carried
