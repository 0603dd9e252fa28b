"""The metric table keeps Prometheus' conventions."""

import re

from graphpod_policy.metrics import METRICS, Kind, Process, of


def test_names_are_unique_and_follow_the_conventions():
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    for metric in METRICS:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is Kind.Counter)
        assert not re.search(r"_(ms|gb|mb|percent)(_|$)", metric.name)
        assert metric.help.endswith(".")
        assert list(metric.buckets) == sorted(metric.buckets)
        assert bool(metric.buckets) == (metric.kind is Kind.Histogram)


def test_every_graph_metric_of_the_engine_names_its_backend():
    for metric in of(Process.Engine):
        if metric.name.startswith("graphpod_graph"):
            assert "backend" in metric.labels, metric.name
