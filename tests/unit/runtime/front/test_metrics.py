"""The exporter against the metric table."""

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from graphpod_policy.metrics import BY_NAME, Kind, Process, of
from graphpod_runtime.front.requests.metrics import Exporter, FrontMetrics
from graphpod_runtime.front.requests.status import Status
from graphpod_runtime.wire.counters import Counters
from graphpod_runtime.wire.messages import FinishReason

from .conftest import Front, engine_json

CORE = re.compile(
    r"graphpod_(graph_(captures|capture_|selfchecks|recaptures|replays|fallbacks|tokens)|forward_|eager_)"
)
"""Rows that only a runner with a model can move; its own tests look at them."""


def exporter(folder: Path) -> tuple[Exporter, FrontMetrics]:
    """An exporter at process start."""
    metrics = FrontMetrics("echo")
    return Exporter(metrics, Status.of(engine_json(folder, folder).read_bytes(), "uid")), metrics


def series(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """name -> labels -> value."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_every_row_of_the_engine_appears_and_no_other_name_of_ours(tmp_path: Path) -> None:
    subject, _ = exporter(tmp_path)
    text = subject.render().decode()
    families = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert {name for name in families if name.startswith("graphpod_")} == {row.name for row in of(Process.Engine)}
    assert "process_resident_memory_bytes" in families


def test_the_fronts_series_begin_at_0(tmp_path: Path) -> None:
    subject, _ = exporter(tmp_path)
    found = series(subject.render().decode())
    reasons = {dict(labels)["finish_reason"] for labels in found["graphpod_requests_total"]}
    assert reasons == {reason.value for reason in FinishReason}
    assert set(found["graphpod_requests_total"].values()) == {0}
    assert found["graphpod_time_to_first_token_seconds_count"] == {(("model_name", "echo"),): 0}
    chat_ok = (("code", "200"), ("handler", "/v1/chat/completions"), ("method", "POST"))
    assert found["graphpod_http_requests_total"][chat_ok] == 0


def test_the_engines_snapshot_is_exported_with_its_buckets(tmp_path: Path) -> None:
    subject, _ = exporter(tmp_path)
    counters = Counters()
    labels = {"phase": "prefill", "policy": "Breakable", "backend": "Recorder"}
    counters.add("graphpod_graph_replays_total", 3, **labels)
    for seconds in (0.02, 0.02, 100):
        counters.observe("graphpod_graph_capture_duration_seconds", seconds, **labels)
    subject.update(counters.snapshot())
    found = series(subject.render().decode())
    key = tuple(sorted(labels.items()))
    assert found["graphpod_graph_replays_total"][key] == 3
    name = "graphpod_graph_capture_duration_seconds"
    assert (found[f"{name}_count"][key], found[f"{name}_sum"][key]) == (3, 100.04)
    buckets = {dict(labels)["le"]: value for labels, value in found[f"{name}_bucket"].items()}
    assert (buckets["0.01"], buckets["0.025"], buckets["60.0"], buckets["+Inf"]) == (0, 2, 2, 3)


def test_paths_nobody_serves_share_one_label(tmp_path: Path) -> None:
    subject, metrics = exporter(tmp_path)
    for number in range(50):
        metrics.http(f"/scan/{number}", "GET", "404")
    other = (("code", "404"), ("handler", "other"), ("method", "GET"))
    assert series(subject.render().decode())["graphpod_http_requests_total"][other] == 50


def test_a_run_moves_every_row_but_the_runners(front: Front) -> None:
    front.client().completions.create(model="echo", prompt="abc")
    found = series(front.get("/metrics").text)
    for row in of(Process.Engine):
        sample = f"{row.name}_count" if row.kind is Kind.Histogram else row.name
        assert bool(found.get(sample)) != bool(CORE.match(row.name)), row.name
    for name in (
        "graphpod_prompt_tokens_total",
        "graphpod_generation_tokens_total",
        "graphpod_kv_cache_capacity_tokens",
    ):
        assert sum(found[name].values()) > 0, name
    for name in (
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "e2e_request_latency_seconds",
        "time_per_output_token_seconds",
    ):
        assert sum(found[f"graphpod_{name}_count"].values()) > 0, name


def test_requests_and_tokens_are_counted_as_they_end(front: Front) -> None:
    def counts() -> list[float]:
        return [
            front.metric("graphpod_requests_total", finish_reason="stop"),
            front.metric("graphpod_prompt_tokens_total"),
            front.metric("graphpod_generation_tokens_total"),
            front.metric("graphpod_request_prompt_tokens_sum"),
            front.metric("graphpod_request_generation_tokens_sum"),
            front.metric("graphpod_time_per_output_token_seconds_count"),
            front.metric("graphpod_http_requests_total", handler="/v1/completions", method="POST", code="200"),
            front.metric("graphpod_http_requests_total", handler="/v1/completions", code="404"),
        ]

    before = counts()
    front.client().completions.create(model="echo", prompt="abc")
    front.post("/v1/completions", {"model": "other", "prompt": "x"})
    assert [now - then for now, then in zip(counts(), before, strict=True)] == [1, 3, 4, 3, 4, 1, 1, 1]


def test_only_the_tables_names_can_be_counted() -> None:
    assert set(BY_NAME) >= {row.name for row in of(Process.Engine)}
