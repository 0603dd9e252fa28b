"""The exporter against the metric table."""

import re
from pathlib import Path

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from graphpod_policy import RULES, Backend, Phase, Stage
from graphpod_policy.metrics import BY_NAME, MOST_SERIES, Kind, Process, of
from graphpod_runtime.front.health import admin_app
from graphpod_runtime.front.metrics.exemplars import names_of
from graphpod_runtime.front.metrics.exporter import HANDLERS, Exporter, FrontMetrics
from graphpod_runtime.front.watchdog import Watchdog
from graphpod_runtime.wire.counters import Counters
from graphpod_runtime.wire.messages import FinishReason
from graphpod_runtime.wire.report import RankReport, StartStage

from .conftest import Front, engine_json, first_status

CORE = re.compile(
    r"graphpod_(graph_(captures|capture_|selfchecks|recaptures|replays|fallbacks|tokens|size_|requested_|decision_)"
    r"|expert_|forward_|eager_|attention_|weights_|trace_|grammar_mask_|speculation_|host_cache_"
    r"|prefix_cache_tier_|rank_|asleep|sleep_)"
)
"""Rows that only a runner with a model can move, or a traced request; their own tests look at them."""


def exporter(folder: Path) -> tuple[Exporter, FrontMetrics]:
    """An exporter at process start."""
    metrics = FrontMetrics("echo")
    return Exporter(metrics, first_status(engine_json(folder, folder))), metrics


def series(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """name -> labels -> value."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_every_row_of_the_engine_appears_and_no_other_name_of_ours(tmp_path: Path) -> None:
    subject, _ = exporter(tmp_path)
    text = subject.render()[0].decode()
    families = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert {name for name in families if name.startswith("graphpod_")} == {row.name for row in of(Process.Engine)}
    assert "process_resident_memory_bytes" in families


def test_each_of_several_ranks_has_series_of_its_own(tmp_path: Path) -> None:
    status = first_status(engine_json(tmp_path, tmp_path))
    ranks = [RankReport(rank, 1000, 200, 30 + rank, 1500).as_dict() for rank in range(2)]
    status.update({**status.report, "ranks": ranks})
    found = series(Exporter(FrontMetrics("echo"), status).render()[0].decode())
    assert found["graphpod_rank_memory_bytes"] == {
        (("kind", kind), ("rank", str(rank))): amount
        for rank in range(2)
        for kind, amount in (("weights", 1000), ("kv_cache", 200), ("graphs", 30 + rank))
    }
    assert found["graphpod_rank_capture_seconds"] == {(("rank", "0"),): 1.5, (("rank", "1"),): 1.5}


def test_the_fronts_series_begin_at_0(tmp_path: Path) -> None:
    subject, _ = exporter(tmp_path)
    found = series(subject.render()[0].decode())
    reasons = {dict(labels)["finish_reason"] for labels in found["graphpod_requests_total"]}
    assert reasons == {reason.value for reason in FinishReason}
    assert set(found["graphpod_requests_total"].values()) == {0}
    assert found["graphpod_time_to_first_token_seconds_count"] == {(("model_name", "echo"),): 0}
    codes = {(dict(labels)["handler"], dict(labels)["code"]) for labels in found["graphpod_http_requests_total"]}
    for handler in ("/v1/chat/completions", "/tokenize", "/v1/models", "/metrics"):
        assert {(handler, "401"), (handler, "405")} <= codes
    assert {("/v1/chat/completions", "413"), ("other", "404"), ("other", "401")} <= codes
    chat_ok = (("code", "200"), ("handler", "/v1/chat/completions"), ("method", "POST"))
    assert found["graphpod_http_requests_total"][chat_ok] == 0


def test_the_engines_snapshot_is_exported_with_its_buckets(tmp_path: Path) -> None:
    subject, _ = exporter(tmp_path)
    counters = Counters()
    labels = {"phase": "prefill", "policy": "Breakable", "backend": "Recorder"}
    counters.add("graphpod_graph_replays_total", 3, **labels)
    subject.update(counters.changes())
    for seconds in (0.02, 0.02, 100):
        counters.observe("graphpod_graph_capture_duration_seconds", seconds, **labels)
    subject.update(counters.changes())
    found = series(subject.render()[0].decode())
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
    assert series(subject.render()[0].decode())["graphpod_http_requests_total"][other] == 50


async def test_a_scrape_by_prometheus_is_reported_and_a_look_by_a_person_is_not(tmp_path: Path) -> None:
    status = first_status(engine_json(tmp_path, tmp_path))
    app = admin_app(status, Watchdog(status.config.resolved()), Exporter(FrontMetrics("echo"), status))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://admin") as admin:

        async def last() -> float | None:
            seconds: float | None = (await admin.get("/warmup")).json()["scrapes"]["lastSecondsAgo"]
            return seconds

        await admin.get("/metrics")
        assert await last() is None
        await admin.get("/metrics", headers={"X-Prometheus-Scrape-Timeout-Seconds": "10"})
        assert await last() is not None
        status.scraped_at = status.began - 60.0
        assert (await last() or 0.0) >= 60.0


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


MAX_SIZES = 128
"""Of a phase, by the API."""
CODES = ("200", "400", "401", "404", "405", "408", "411", "413", "422", "499", "500", "503")
METHODS = ("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE")


def test_no_load_and_no_ladder_exceed_the_documented_bound_of_series(tmp_path: Path) -> None:
    """Every value of every label at once: the longest ladders, every answer to every method on every path."""
    subject, metrics = exporter(tmp_path)
    counters = Counters()
    counters.start_at_zero(Backend.Recorder)
    costs = [{"size": size + 1, "seconds": 0.1, "poolBytes": 1, "driverBytes": 1} for size in range(MAX_SIZES)]
    for phase in subject._status.report["graph"].values():
        phase["costs"] = costs
    for phase in Phase:
        counters.observer("graphpod_graph_requested_rows", phase=phase, backend=Backend.Recorder)
        for size in range(MAX_SIZES):
            labels = {"phase": phase, "policy": "Full", "backend": Backend.Recorder, "size": str(size)}
            counters.add("graphpod_graph_size_replays_total", 0, **labels)
            counters.add("graphpod_graph_size_padding_tokens_total", 0, **labels)
    subject._status.report["attention"] = {"kernels": "Torch", "because": ""}
    subject._status.report["weights"] = "bfloat16"
    subject._status.report["stages"] = [{"name": stage.value, "seconds": 1.0} for stage in StartStage]
    subject._status.report["decisions"] = [
        {"phase": phase.value, "rule": rule.id, "stage": stage.value, "outcome": "Adjust"}
        for rule in RULES
        for phase in Phase
        for stage in Stage
    ]
    for handler in (*HANDLERS, "/elsewhere"):
        for method in METHODS:
            for code in CODES:
                metrics.http(handler, method, code)
    subject.update(counters.changes())
    series = [line for line in subject.render()[0].decode().splitlines() if not line.startswith("#")]
    assert 1500 < len(series) <= MOST_SERIES[Process.Engine]


OPEN_METRICS = "application/openmetrics-text;version=1.0.0"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def test_openmetrics_has_the_request_in_the_bucket_of_its_latency(front: Front) -> None:
    headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
    answered = front.client().completions.create(model="echo", prompt="abc", extra_headers=headers)
    reply = httpx2.get(f"{front.admin}/metrics", headers={"accept": OPEN_METRICS})
    assert reply.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    lines = [line.partition(" # ") for line in reply.text.splitlines()]
    named = {line.split("{")[0] for line, _, exemplar in lines if exemplar}
    ours = {line.split("{")[0] for line, _, exemplar in lines if answered.id in exemplar and TRACE in exemplar}
    latencies = ("time_to_first_token", "e2e_request_latency")
    assert named == ours == {f"graphpod_{name}_seconds_bucket" for name in latencies}
    assert reply.text.endswith("# EOF\n")
    assert "request_id" not in front.get("/metrics").text


def test_a_client_cannot_write_an_exemplar() -> None:
    for header in ("", "x" * 4096, f"00-{TRACE}-00f067aa0ba902b7", f"00-{'0' * 32}-00f067aa0ba902b7-01", TRACE):
        assert names_of("cmpl-1", header) == {"request_id": "cmpl-1"}
    assert names_of("cmpl-1", None) == {"request_id": "cmpl-1"}


def test_requests_that_the_engine_has_not_read_yet_wait(tmp_path: Path) -> None:
    """It reads between two passes, and a pass may take long: a picker must not see an idle replica meanwhile."""
    subject, _ = exporter(tmp_path)
    counters = Counters()

    def waiting(sent: int) -> float:
        subject.sent = lambda: sent
        return series(subject.render()[0].decode())["graphpod_requests_waiting"][()]

    assert "graphpod_requests_waiting" not in series(subject.render()[0].decode()), "the engine has not reported"
    counters.set("graphpod_requests_running", 2)
    counters.set("graphpod_requests_waiting", 1)
    subject.update(counters.snapshot())
    assert [waiting(sent) for sent in (0, 2, 3, 7)] == [1, 1, 1, 5]
