"""What a real engine and a real operator export, as Prometheus and its linter read it."""

import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from graphpod_policy.metrics import MOST_SERIES, Process
from tests.monitoring.conftest import Watched

pytestmark = pytest.mark.slow
NOT_OURS = ("process_", "python_")


def scrape(watched: Watched, process: Process) -> str:
    ports = {Process.Engine: watched.engine.admin, Process.Operator: f"127.0.0.1:{watched.operator.port}"}
    with urllib.request.urlopen(f"http://{ports[process]}/metrics", timeout=10) as reply:
        return str(reply.read().decode())


@pytest.mark.parametrize("process", Process)
def test_promtool_finds_no_fault_in_a_scrape(process: Process, watched: Watched, promtool: Path) -> None:
    lines = scrape(watched, process).splitlines(keepends=True)
    # the client library's own names are not ours to change
    ours = "".join(
        line for line in lines if not line.removeprefix("# HELP ").removeprefix("# TYPE ").startswith(NOT_OURS)
    )
    done = subprocess.run([promtool, "check", "metrics"], input=ours, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("process", Process)
def test_the_series_after_a_load_are_within_the_documented_bound(process: Process, watched: Watched) -> None:
    series = [line for line in scrape(watched, process).splitlines() if not line.startswith("#")]
    assert 100 < len(series) <= MOST_SERIES[process]


@pytest.mark.parametrize("histogram", ["time_to_first_token", "e2e_request_latency"])
def test_prometheus_keeps_exemplars_that_name_requests(histogram: str, watched: Watched) -> None:
    words = {
        "query": f"graphpod_{histogram}_seconds_bucket",
        "start": str(watched.span.end - watched.span.length),
        "end": str(time.time()),
    }
    found = watched.prometheus.get(f"query_exemplars?{urllib.parse.urlencode(words)}")
    ids = {exemplar["labels"]["request_id"] for one in found for exemplar in one["exemplars"]}
    assert 0 < len(ids) <= watched.load.ended
    assert all(id.startswith(("cmpl-", "chatcmpl-", "embd-")) for id in ids)
