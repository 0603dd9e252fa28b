"""The exporter: the rows of the metric table, with the front's own series and the engine's latest snapshot.

One custom collector makes all of it at scrape time. A name that is not in the table cannot be written (Counters
refuses it), and every row of the table appears, with or without a series. What the warm-up report says (identity,
policy, sizes, memory) is read from it, so metrics and GET /warmup cannot differ.
"""

import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from graphpod_policy.metrics import METRICS, Kind, Process
from graphpod_policy.metrics import Metric as Row
from graphpod_policy.metrics import of as rows_of
from graphpod_runtime.front.requests.status import Status
from graphpod_runtime.wire.counters import Counters, Sample
from graphpod_runtime.wire.messages import FinishReason
from graphpod_runtime.wire.report import State

CONTENT_TYPE = CONTENT_TYPE_LATEST

HANDLERS = ("/v1/chat/completions", "/v1/completions", "/v1/models")
OTHER = "other"
_METHOD = {"/v1/chat/completions": "POST", "/v1/completions": "POST", "/v1/models": "GET"}
_CODES = ("200", "400", "404", "500", "503")


class FrontMetrics:
    """What the front measures; every series exists from the start, at 0."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._counters = Counters()
        for reason in FinishReason:
            self._counters.add("graphpod_requests_total", 0, model_name=model, finish_reason=reason.value)
        self._counters.add("graphpod_prompt_tokens_total", 0, model_name=model)
        self.generated = self._counters.adder("graphpod_generation_tokens_total", model_name=model)
        """So many tokens have come."""
        self.next_tokens = self._counters.observer("graphpod_inter_token_latency_seconds", model_name=model)
        """So many tokens have come, each so many seconds after the one before it: (seconds, tokens)."""
        for handler in HANDLERS:
            for code in _CODES:
                self.http(handler, _METHOD[handler], code, 0)

    def http(self, handler: str, method: str, code: str, count: int = 1) -> None:
        """An HTTP answer; paths and methods that we do not serve share one label each."""
        self._counters.add(
            "graphpod_http_requests_total",
            count,
            handler=handler if handler in HANDLERS else OTHER,
            method=method if method in ("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH") else OTHER,
            code=code,
        )

    def accepted(self, prompt_tokens: int) -> None:
        """A request goes to the engine."""
        self._counters.add("graphpod_prompt_tokens_total", prompt_tokens, model_name=self._model)

    def first_token(self, seconds: float) -> None:
        """The first token has come, `seconds` after the request."""
        self._counters.observe("graphpod_time_to_first_token_seconds", seconds, model_name=self._model)

    def finished(self, reason: FinishReason) -> None:
        """A request has ended."""
        self._counters.add("graphpod_requests_total", model_name=self._model, finish_reason=reason.value)

    def answered(self, seconds: float, prompt_tokens: int, tokens: int, decoding: float) -> None:
        """A request was answered in full, `seconds` after it came: `tokens`, the last of them `decoding` seconds after
        the first.
        """
        observe, model = self._counters.observe, self._model
        observe("graphpod_e2e_request_latency_seconds", seconds, model_name=model)
        observe("graphpod_request_prompt_tokens", prompt_tokens, model_name=model)
        observe("graphpod_request_generation_tokens", tokens, model_name=model)
        if tokens > 1:
            observe("graphpod_time_per_output_token_seconds", decoding / (tokens - 1), model_name=model)

    def value(self, name: str, **labels: str) -> float:
        """The sum of the front's series of `name` with these labels."""
        return self._counters.value(name, **labels)

    def snapshot(self) -> list[Sample]:
        """Every series of the front; a histogram without an observation is all zeros."""
        samples = self._counters.snapshot()
        seen = {sample.name for sample in samples}
        return samples + [
            Sample(row.name, {"model_name": self._model}, 0.0, (0,) * (len(row.buckets) + 1))
            for row in METRICS
            if row.kind is Kind.Histogram and row.labels == ("model_name",) and row.name not in seen
        ]


class Exporter(Collector):
    """Renders the Prometheus text of both processes."""

    def __init__(self, front: FrontMetrics, status: Status) -> None:
        self._front = front
        self._status = status
        self._engine: list[Sample] = []
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def update(self, samples: list[Sample]) -> None:
        """The engine's counters have come."""
        self._engine = samples

    def render(self) -> bytes:
        """The body of GET /metrics."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """One family a row of the table."""
        by_name: dict[str, list[Sample]] = {}
        for sample in (*self._front.snapshot(), *self._engine, *_reported(self._status.report)):
            by_name.setdefault(sample.name, []).append(sample)
        for row in rows_of(Process.Engine):
            yield _family(row, by_name.get(row.name, ()))

    def describe(self) -> Iterable[Metric]:
        """Nothing before the first scrape."""
        return ()


def _reported(report: Mapping[str, Any]) -> list[Sample]:
    """The series that restate a warm-up report."""
    series = Counters()
    backend = report["backend"]
    series.set("graphpod_build_info", 1, version=report["engine"], torch=TORCH_VERSION, backend=backend)
    for state in State:
        series.set("graphpod_warmup_state", report["state"] == state, state=state.value)
    for stage in report["stages"]:
        series.set("graphpod_startup_stage_duration_seconds", stage["seconds"], stage=stage["name"])
    kv = report["kv"]
    series.set("graphpod_kv_cache_info", 1, page_size=str(kv["pageSize"]), pages=str(kv["pages"]))
    planned = captured = 0
    for phase, graph in report["graph"].items():
        words = {name: graph[name] for name in ("requested", "planned", "effective")}
        series.set("graphpod_graph_policy_info", 1, phase=phase, backend=backend, **words)
        labels = {"phase": phase, "policy": graph["effective"], "backend": backend}
        series.set("graphpod_graph_sizes_planned", graph["sizes"]["planned"], **labels)
        series.set("graphpod_graphs", graph["sizes"]["captured"], **labels)
        series.set("graphpod_graph_segments", graph["segments"], **labels)
        for kind in ("pool", "driver"):
            series.set("graphpod_graph_memory_bytes", graph[f"{kind}Bytes"], kind=kind, **labels)
        planned += graph["sizes"]["planned"]
        captured += graph["sizes"]["captured"]
    done = report["state"] == State.Ready
    series.set("graphpod_warmup_progress_ratio", captured / planned if planned else float(done))
    return series.snapshot()


def _torch_version() -> str:
    """The version of torch that the engine process will import; the front itself never does."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "none"


TORCH_VERSION = _torch_version()


def _family(row: Row, samples: Iterable[Sample]) -> Metric:
    if row.kind is Kind.Histogram:
        histogram = HistogramMetricFamily(row.name, row.help, labels=row.labels)
        for sample in samples:
            histogram.add_metric(_values(row, sample.labels), _buckets(row, sample), sum_value=sample.value)
        return histogram
    kind = CounterMetricFamily if row.kind is Kind.Counter else GaugeMetricFamily
    family = kind(row.name, row.help, labels=row.labels)
    for sample in samples:
        family.add_metric(_values(row, sample.labels), sample.value)
    return family


def _values(row: Row, labels: Mapping[str, str]) -> list[str]:
    return [labels[name] for name in row.labels]


def _buckets(row: Row, sample: Sample) -> list[tuple[str, float]]:
    """Cumulative counts by upper bound, as Prometheus writes them."""
    total, buckets = 0, []
    for bound, count in zip((*row.buckets, float("inf")), sample.buckets, strict=True):
        total += count
        buckets.append(("+Inf" if bound == float("inf") else str(float(bound)), float(total)))
    return buckets
