"""vLLM's metrics in terms of ours: the names and labels that gateways, scalers and benchmarks of vLLM ask for.

The engine exports them in addition to its own where `spec.engine.vllmMetricNames` asks for them. Each row restates
series that exist, so both names have one value; buckets of histograms are ours. Names and labels are those of vLLM
0.33.0 (vllm/v1/metrics/loggers.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

PREFIX = "vllm:"
ENGINE = ("engine", "0")
"""vLLM numbers its data-parallel engines; a pod of ours is one."""


@dataclass(frozen=True, slots=True)
class VllmMetric:
    """One row: vLLM's `name` without its prefix, and `source`, our metric; None for a `constant` value.

    `fixed` are labels with constant values. `split` is one label that our series have too: vLLM's name and ours, and
    vLLM's value for each of ours; series with another value of ours are left out, those that become one are added up.
    `sums`: a counter, of what our histogram has observed in total. `negated`: 1 where ours is 0 or has no series.
    """

    name: str
    source: str | None
    fixed: tuple[tuple[str, str], ...] = ()
    split: tuple[str, str] | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    constant: float = 0
    sums: bool = False
    negated: bool = False


_FINISHED = {"stop": "stop", "length": "length", "abort": "abort", "slow_reader": "abort", "error": "error"}


def _none(name: str) -> VllmMetric:
    """What counts things that no graphpod has: always 0, as in a vLLM that does not use them."""
    return VllmMetric(name, None)


VLLM_METRICS: tuple[VllmMetric, ...] = (
    VllmMetric("num_requests_running", "graphpod_requests_running"),
    VllmMetric("num_requests_waiting", "graphpod_requests_waiting"),
    VllmMetric("num_requests_waiting_by_reason", "graphpod_requests_waiting", (("reason", "capacity"),)),
    VllmMetric("num_requests_waiting_by_reason", None, (("reason", "deferred"),)),
    VllmMetric("engine_sleep_state", "graphpod_asleep", (("sleep_state", "awake"),), negated=True),
    VllmMetric("engine_sleep_state", "graphpod_asleep", (("sleep_state", "weights_offloaded"),)),
    VllmMetric("engine_sleep_state", None, (("sleep_state", "discard_all"),)),
    VllmMetric("kv_cache_usage_perc", "graphpod_kv_cache_usage_ratio"),
    VllmMetric("prefix_cache_queries_total", "graphpod_prefix_cache_queried_tokens_total"),
    VllmMetric("prefix_cache_hits_total", "graphpod_prefix_cache_hit_tokens_total"),
    VllmMetric("prompt_tokens_cached_total", "graphpod_prefix_cache_hit_tokens_total"),
    _none("external_prefix_cache_queries_total"),
    _none("external_prefix_cache_hits_total"),
    _none("mm_cache_queries_total"),
    _none("mm_cache_hits_total"),
    VllmMetric("num_preemptions_total", "graphpod_preemptions_total"),
    VllmMetric("prompt_tokens_total", "graphpod_prompt_tokens_total"),
    VllmMetric(
        "prompt_tokens_by_source_total",
        "graphpod_request_prefill_computed_tokens",
        (("source", "local_compute"),),
        sums=True,
    ),
    VllmMetric(
        "prompt_tokens_by_source_total", "graphpod_prefix_cache_hit_tokens_total", (("source", "local_cache_hit"),)
    ),
    VllmMetric("prompt_tokens_by_source_total", None, (("source", "external_kv_transfer"),)),
    VllmMetric("generation_tokens_total", "graphpod_generation_tokens_total"),
    VllmMetric(
        "request_success_total",
        "graphpod_requests_total",
        split=("finished_reason", "finish_reason"),
        values=_FINISHED,
    ),
    VllmMetric(
        "admission_rejections_total",
        "graphpod_requests_total",
        split=("reason", "finish_reason"),
        values={"rejected": "max_num_queued_reqs"},
    ),
    VllmMetric("request_prompt_tokens", "graphpod_request_prompt_tokens"),
    VllmMetric("request_generation_tokens", "graphpod_request_generation_tokens"),
    VllmMetric("request_max_num_generation_tokens", "graphpod_request_generation_tokens"),
    VllmMetric("request_params_n", "graphpod_request_choices"),
    VllmMetric("request_params_max_tokens", "graphpod_request_max_tokens"),
    VllmMetric("request_num_preemptions", "graphpod_request_preemptions"),
    VllmMetric("request_prefill_kv_computed_tokens", "graphpod_request_prefill_computed_tokens"),
    VllmMetric("iteration_tokens_total", "graphpod_iteration_tokens"),
    VllmMetric("time_to_first_token_seconds", "graphpod_time_to_first_token_seconds"),
    VllmMetric("inter_token_latency_seconds", "graphpod_inter_token_latency_seconds"),
    VllmMetric("time_per_output_token_seconds", "graphpod_inter_token_latency_seconds"),
    VllmMetric("request_time_per_output_token_seconds", "graphpod_time_per_output_token_seconds"),
    VllmMetric("e2e_request_latency_seconds", "graphpod_e2e_request_latency_seconds"),
    VllmMetric("request_queue_time_seconds", "graphpod_request_queue_time_seconds"),
    VllmMetric("request_inference_time_seconds", "graphpod_request_inference_time_seconds"),
    VllmMetric("request_prefill_time_seconds", "graphpod_request_prefill_time_seconds"),
    VllmMetric("request_decode_time_seconds", "graphpod_request_decode_time_seconds"),
)
"""Rows of one name stand together. `cache_config_info` is not among them: its labels are values of ours."""

CACHE_CONFIG = "cache_config_info"
"""Always 1; its labels are the KV cache's page size, pages and tokens, and the longest contexts that it holds."""
