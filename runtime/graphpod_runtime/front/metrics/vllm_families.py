"""The engine's series by vLLM's names, from the same samples as ours: see `graphpod_policy.vllm_metrics`."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from graphpod_policy.metrics import BY_NAME, Kind
from graphpod_policy.vllm_metrics import CACHE_CONFIG, ENGINE, PREFIX, VLLM_METRICS, VllmMetric
from graphpod_runtime.front.metrics.histogram import cumulative
from graphpod_runtime.front.status import Status
from graphpod_runtime.wire.counters import Sample

Samples = Mapping[str, Sequence[Sample]]
"""Ours, by name."""


def families(samples: Samples, status: Status) -> Iterator[Metric]:
    """Every row of the table."""
    model = status.config.model.name
    for name, together in groupby(VLLM_METRICS, key=lambda row: row.name):
        rows = list(together)
        source = BY_NAME[rows[0].source] if rows[0].source is not None else None
        if source is not None and source.kind is Kind.Histogram and not rows[0].sums:
            yield _histogram(rows[0], samples, model)
            continue
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        labels = ["model_name", ENGINE[0], *_own_labels(rows[0])]
        family = kind(PREFIX + name, f"{_help(rows[0])}", labels=labels)
        for row in rows:
            for own, value in _values(row, samples).items():
                family.add_metric([model, ENGINE[1], *own], value)
        yield family
    yield _cache_config(status)


def _own_labels(row: VllmMetric) -> list[str]:
    return [name for name, _ in row.fixed] + ([row.split[0]] if row.split is not None else [])


def _values(row: VllmMetric, samples: Samples) -> dict[tuple[str, ...], float]:
    """The row's series: their own labels' values, and their values."""
    fixed = tuple(value for _, value in row.fixed)
    if row.source is None:
        return {fixed: row.constant}
    if row.split is None:
        total = sum(sample.value for sample in samples.get(row.source, ()))
        return {fixed: 1 - total if row.negated else total}
    found: dict[tuple[str, ...], float] = {(value,): 0.0 for value in row.values.values()}
    for sample in samples.get(row.source, ()):
        if (value := row.values.get(sample.labels[row.split[1]])) is not None:
            found[value,] += sample.value
    return found


def _histogram(row: VllmMetric, samples: Samples, model: str) -> Metric:
    family = HistogramMetricFamily(PREFIX + row.name, _help(row), labels=["model_name", ENGINE[0]])
    for sample in samples.get(row.source or "", ()):
        buckets = cumulative(BY_NAME[sample.name].buckets, sample.buckets)
        family.add_metric([model, ENGINE[1]], buckets, sum_value=sample.value)
    return family


def _cache_config(status: Status) -> Metric:
    """What the KV cache is: nothing before the engine has made it."""
    labels = ("block_size", "num_gpu_blocks", "kv_cache_size_tokens", "kv_cache_max_concurrency", ENGINE[0])
    family = GaugeMetricFamily(PREFIX + CACHE_CONFIG, "Information of the KV cache, in its labels.", labels=labels)
    kv = status.report["kv"]
    if kv["tokens"]:
        contexts = kv["tokens"] / status.context_tokens
        values = (kv["pageSize"], kv["pages"], kv["tokens"], f"{contexts:.2f}", ENGINE[1])
        family.add_metric(list(map(str, values)), 1)
    return family


def _help(row: VllmMetric) -> str:
    return f"{row.source}, by vLLM's name." if row.source is not None else "Constant: graphpod has none of these."
