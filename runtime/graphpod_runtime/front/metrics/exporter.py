"""The exporter: the rows of the metric table, with the front's own series and the engine's latest snapshot.

One custom collector makes all of it at scrape time. A name that is not in the table cannot be written (Counters
refuses it), and every row of the table appears, with or without a series. What the warm-up report says (identity,
policy, sizes, memory) is read from it, so metrics and GET /warmup cannot differ.
"""

import importlib.metadata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import get_args

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from graphpod_policy.metrics import BY_NAME, Kind, Process
from graphpod_policy.metrics import Metric as Row
from graphpod_policy.metrics import of as rows_of
from graphpod_runtime.front.metrics import vllm_families
from graphpod_runtime.front.metrics.exemplars import Exemplars
from graphpod_runtime.front.metrics.histogram import cumulative
from graphpod_runtime.front.status import Status
from graphpod_runtime.wire.counters import Counters, Sample
from graphpod_runtime.wire.messages import FinishReason, GrammarKind
from graphpod_runtime.wire.report import State

_METHOD = {
    "/v1/chat/completions": "POST",
    "/v1/completions": "POST",
    "/v1/responses": "POST",
    "/v1/messages": "POST",
    "/v1/messages/count_tokens": "POST",
    "/v1/models": "GET",
    "/v1/embeddings": "POST",
    "/v1/score": "POST",
    "/v1/rerank": "POST",
    "/tokenize": "POST",
    "/detokenize": "POST",
    "/health": "GET",
    "/ping": "GET",
    "/metrics": "GET",
}
HANDLERS = tuple(_METHOD)
OTHER = "other"
POOLED = ("embedding", "score", "rerank")
"""What asks for vectors of prompts."""
_CODES = {"GET": ("200", "401", "503"), "POST": ("200", "400", "401", "404", "413", "500", "503")}
"""By a path's own method. A path answers 405 to the other one of the two, and a path that is not served 401 or 404."""
METHODS = ("GET", "POST", "HEAD", "OPTIONS")
"""Few, as each is a series for every path and code."""


WAITING, RUNNING, KV_USAGE = "graphpod_requests_waiting", "graphpod_requests_running", "graphpod_kv_cache_usage_ratio"
FIRST_TOKEN, WHOLE_REQUEST = "graphpod_time_to_first_token_seconds", "graphpod_e2e_request_latency_seconds"


class FrontMetrics:
    """What the front measures; every series exists from the start, at 0."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._counters = Counters()
        self.exemplars = {name: Exemplars(BY_NAME[name].buckets) for name in (FIRST_TOKEN, WHOLE_REQUEST)}
        for reason in FinishReason:
            self._counters.add("graphpod_requests_total", 0, model_name=model, finish_reason=reason.value)
        self._counters.add("graphpod_prompt_tokens_total", 0, model_name=model)
        for kind in POOLED:
            self.pooled(kind, 0)
        self.generated = self._counters.adder("graphpod_generation_tokens_total", model_name=model)
        """So many tokens have come."""
        self.next_tokens = self._counters.observer("graphpod_inter_token_latency_seconds", model_name=model)
        """So many tokens have come, each so many seconds after the one before it: (seconds, tokens)."""
        self.choices = self._counters.observer("graphpod_request_choices", model_name=model)
        """So many answers will be generated for a prompt, of so many prompts: (answers, prompts)."""
        self._first_token, self._whole, self._of_prompts, self._of_answers, self._per_token = (
            self._counters.observer(name, model_name=model)
            for name in (
                FIRST_TOKEN,
                WHOLE_REQUEST,
                "graphpod_request_prompt_tokens",
                "graphpod_request_generation_tokens",
                "graphpod_time_per_output_token_seconds",
            )
        )
        for kind in get_args(GrammarKind):
            self._counters.add("graphpod_grammar_requests_total", 0, model_name=model, kind=kind)
        for handler, method in _METHOD.items():
            for code in _CODES[method]:
                self.http(handler, method, code, 0)
            self.http(handler, "POST" if method == "GET" else "GET", "405", 0)
        for method in _CODES:
            for code in ("401", "404", "405"):
                self.http(OTHER, method, code, 0)

    def tracing(self) -> None:
        """Spans of requests are made: their series begin at 0."""
        for result in ("exported", "failed", "dropped"):
            self.spans(result, 0)

    def spans(self, result: str, count: int) -> None:
        """So many spans were exported, failed or were dropped."""
        self._counters.add("graphpod_trace_spans_total", count, result=result)

    def http(self, handler: str, method: str, code: str, count: int = 1) -> None:
        """An HTTP answer; paths and methods that we do not serve share one label each."""
        self._counters.add(
            "graphpod_http_requests_total",
            count,
            handler=handler if handler in HANDLERS else OTHER,
            method=method if method in METHODS else OTHER,
            code=code,
        )

    def accepted(self, prompt_tokens: int) -> None:
        """A request goes to the engine."""
        self._counters.add("graphpod_prompt_tokens_total", prompt_tokens, model_name=self._model)

    def pooled(self, kind: str, prompts: int) -> None:
        """So many prompts go to the engine for vectors."""
        self._counters.add("graphpod_pooled_prompts_total", prompts, model_name=self._model, kind=kind)

    def constrained(self, kind: GrammarKind) -> None:
        """An answer must follow a grammar of this kind."""
        self._counters.add("graphpod_grammar_requests_total", model_name=self._model, kind=kind)

    def first_token(self, seconds: float, names: Mapping[str, str]) -> None:
        """The first token of the request of these `names` has come, `seconds` after the request."""
        self._first_token(seconds)
        self.exemplars[FIRST_TOKEN].keep(seconds, names)

    def finished(self, reason: FinishReason) -> None:
        """A request has ended."""
        self._counters.add("graphpod_requests_total", model_name=self._model, finish_reason=reason.value)

    def answered(
        self, seconds: float, prompt_tokens: int, tokens: int, decoding: float, names: Mapping[str, str]
    ) -> None:
        """The request of these `names` was answered in full, `seconds` after it came: `tokens`, the last of them
        `decoding` seconds after the first.
        """
        self._whole(seconds)
        self.exemplars[WHOLE_REQUEST].keep(seconds, names)
        self._of_prompts(prompt_tokens)
        self._of_answers(tokens)
        if tokens > 1:
            self._per_token(decoding / (tokens - 1))

    def value(self, name: str, **labels: str) -> float:
        """The sum of the front's series of `name` with these labels."""
        return self._counters.value(name, **labels)

    def snapshot(self) -> list[Sample]:
        """Every series of the front; a histogram without an observation is all zeros."""
        return self._counters.snapshot()


class Exporter(Collector):
    """Renders the Prometheus text of both processes."""

    def __init__(self, front: FrontMetrics, status: Status, vllm_names: bool = False) -> None:
        """`vllm_names`: the engine's series by vLLM's names, too."""
        self._front = front
        self._vllm_names = vllm_names
        self.sent: Callable[[], int] = lambda: 0
        """How many requests the engine has, those included that it has not read yet."""
        self._status = status
        self._engine: dict[tuple[str, tuple[str, ...]], Sample] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def update(self, samples: list[Sample]) -> None:
        """Series of the engine that have changed."""
        self._engine.update({(sample.name, tuple(sample.labels.values())): sample for sample in samples})

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The body of GET /metrics and its type, as the header `accept` asks: only OpenMetrics has exemplars."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def collect(self) -> Iterator[Metric]:
        """One family a row of the table."""
        by_name: dict[str, list[Sample]] = {}
        # The engine's thread may add series meanwhile.
        for sample in (*self._front.snapshot(), *list(self._engine.values()), *_reported(self._status)):
            by_name.setdefault(sample.name, []).append(sample)
        if WAITING in by_name:
            by_name[WAITING] = [Sample(WAITING, {}, self._waiting())]
        for row in rows_of(Process.Engine):
            exemplars = self._front.exemplars.get(row.name)
            yield _family(row, by_name.get(row.name, ()), exemplars.latest if exemplars else None)
        if self._vllm_names:
            yield from vllm_families.families(by_name, self._status)

    def load(self) -> dict[str, float]:
        """What a balancer asks, by vLLM's names."""
        return {"kv_cache_usage_perc": self._gauge(KV_USAGE), "num_requests_waiting": self._waiting()}

    def _waiting(self) -> float:
        """Requests that wait, those included that the engine was sent while it computes a pass: it reads after it."""
        return float(max(self._gauge(WAITING), self.sent() - self._gauge(RUNNING)))

    def _gauge(self, name: str) -> float:
        """The engine's gauge without labels; 0 before it has reported one."""
        found = self._engine.get((name, ()))
        return 0.0 if found is None else float(found.value)

    def describe(self) -> Iterable[Metric]:
        """Nothing before the first scrape."""
        return ()


def _reported(status: Status) -> list[Sample]:
    """The series that restate a warm-up report, and when the warm-up had ended."""
    series, report = Counters(), status.report
    backend = report["backend"]
    if status.started_at is not None:
        series.set("graphpod_ready_timestamp_seconds", status.started_at)
    series.set("graphpod_build_info", 1, version=report["engine"], torch=TORCH_VERSION, backend=backend)
    for state in State:
        series.set("graphpod_warmup_state", report["state"] == state, state=state.value)
    for stage in report["stages"]:
        series.set("graphpod_startup_stage_duration_seconds", stage["seconds"], stage=stage["name"])
    kv = report["kv"]
    series.set("graphpod_kv_cache_info", 1, page_size=str(kv["pageSize"]), pages=str(kv["pages"]))
    series.set("graphpod_memory_bytes", report["weightsBytes"], kind="weights")
    series.set("graphpod_memory_bytes", kv["bytes"], kind="kv_cache")
    for rank in report["ranks"]:
        number = str(rank["rank"])
        for kind, name in (("weights", "weightsBytes"), ("kv_cache", "kvBytes"), ("graphs", "graphBytes")):
            series.set("graphpod_rank_memory_bytes", rank[name], rank=number, kind=kind)
        series.set("graphpod_rank_capture_seconds", rank["captureSeconds"], rank=number)
    for source, functions in report["compiled"].items():
        series.set("graphpod_compiled_functions", functions, source=source)
    if report["attention"] is not None:
        series.set("graphpod_attention_info", 1, kernels=report["attention"]["kernels"])
    if report["weights"] is not None:
        series.set("graphpod_weights_info", 1, form=report["weights"])
    for decision in report["decisions"]:
        words = {name: decision[name] for name in ("phase", "rule", "stage", "outcome")}
        series.set("graphpod_graph_decision_info", 1, backend=backend, **words)
    planned = captured = 0
    for phase, graph in report["graph"].items():
        words = {name: graph[name] for name in ("requested", "planned", "effective")}
        series.set("graphpod_graph_policy_info", 1, phase=phase, backend=backend, **words)
        labels = {"phase": phase, "policy": graph["effective"], "backend": backend}
        series.set("graphpod_graph_sizes_planned", graph["sizes"]["planned"], **labels)
        series.set("graphpod_graphs", graph["sizes"]["captured"], **labels)
        series.set("graphpod_graph_segments", graph["segments"], **labels)
        series.set(
            "graphpod_graph_max_size_tokens", max((cost["size"] for cost in graph["costs"]), default=0), **labels
        )
        for cost in graph["costs"]:
            of_size = {**labels, "size": str(cost["size"])}
            series.set("graphpod_graph_size_capture_seconds", cost["seconds"], **of_size)
            for kind in ("pool", "driver"):
                series.set("graphpod_graph_size_memory_bytes", cost[f"{kind}Bytes"], kind=kind, **of_size)
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


def _family(row: Row, samples: Iterable[Sample], exemplars: Sequence[Exemplar | None] | None = None) -> Metric:
    if row.kind is Kind.Histogram:
        histogram = HistogramMetricFamily(row.name, row.help, labels=row.labels)
        for sample in samples:
            buckets = cumulative(row.buckets, sample.buckets, exemplars)
            histogram.add_metric(_values(row, sample.labels), buckets, sum_value=sample.value)
        return histogram
    kind = CounterMetricFamily if row.kind is Kind.Counter else GaugeMetricFamily
    family = kind(row.name, row.help, labels=row.labels)
    for sample in samples:
        family.add_metric(_values(row, sample.labels), sample.value)
    return family


def _values(row: Row, labels: Mapping[str, str]) -> list[str]:
    return [labels[name] for name in row.labels]
