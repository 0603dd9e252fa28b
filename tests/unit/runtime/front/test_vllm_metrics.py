"""vLLM's names for our metrics: the same values, with the labels that vLLM has."""

from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample as Exposed

from graphpod_policy.metrics import BY_NAME, Kind
from graphpod_policy.vllm_metrics import PREFIX, VLLM_METRICS
from graphpod_runtime.front.metrics.exporter import Exporter, FrontMetrics
from graphpod_runtime.wire.counters import Sample
from graphpod_runtime.wire.messages import FinishReason

from .conftest import Front, engine_json, first_status
from .test_openai import TEXT

COUNT, TOKENS = 3, 5


def exposed(text: str) -> dict[str, list[Exposed]]:
    """Samples by name."""
    found: dict[str, list[Exposed]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


def served(own_front: Callable[..., Front]) -> dict[str, list[Exposed]]:
    """What a server exports after COUNT requests of TOKENS tokens each."""
    front = own_front(options={"vllm_metric_names": True})
    for _ in range(COUNT):
        answer = front.post(TEXT, {"model": "echo", "prompt": "x" * 16, "max_tokens": TOKENS, "ignore_eos": True})
        assert answer.status_code == 200
    return exposed(front.get("/metrics").text)


def test_every_row_names_a_metric_of_the_table_and_a_kind_that_it_can_be() -> None:
    for row in VLLM_METRICS:
        if row.source is not None:
            source = BY_NAME[row.source]
            if source.kind is not Kind.Histogram or row.sums:
                assert row.name.endswith("_total") == (row.sums or source.kind is Kind.Counter), row.name
            assert not row.sums or source.kind is Kind.Histogram
            assert row.split is None or row.split[1] in source.labels


def test_without_the_switch_no_name_is_vllms(front: Front) -> None:
    assert PREFIX not in front.get("/metrics").text


def test_values_are_ours_and_labels_are_vllms(own_front: Callable[..., Front]) -> None:
    found = served(own_front)

    def value(name: str, **labels: str) -> float:
        return sum(sample.value for sample in found[PREFIX + name] if labels.items() <= sample.labels.items())

    for row in VLLM_METRICS:
        histogram = row.source is not None and BY_NAME[row.source].kind is Kind.Histogram and not row.sums
        suffix = "_count" if histogram else ""
        for sample in found[f"{PREFIX}{row.name}{suffix}"]:
            assert (sample.labels["model_name"], sample.labels["engine"]) == ("echo", "0"), row.name
    assert value("request_success_total") == value("request_success_total", finished_reason="length") == COUNT
    assert value("admission_rejections_total", reason="max_num_queued_reqs") == 0
    assert value("prompt_tokens_total") == 16 * COUNT
    assert value("generation_tokens_total") == TOKENS * COUNT
    for name in ("time_to_first_token_seconds", "request_num_preemptions", "request_inference_time_seconds"):
        assert value(f"{name}_count") == COUNT
    assert value("request_params_max_tokens_sum") == value("request_generation_tokens_sum") == TOKENS * COUNT
    assert (value("iteration_tokens_total_sum"), value("iteration_tokens_total_count")) == (
        (16 + TOKENS) * COUNT,
        TOKENS * COUNT,
    )
    assert value("num_requests_waiting_by_reason", reason="capacity") == value("num_requests_waiting") == 0
    assert value("engine_sleep_state", sleep_state="awake") == 1
    assert value("request_prefill_kv_computed_tokens_sum") + value("prefix_cache_hits_total") == 16 * COUNT
    assert value("request_params_n_count") == value("request_params_n_sum") == COUNT
    by_source = {sample.labels["source"]: sample.value for sample in found[PREFIX + "prompt_tokens_by_source_total"]}
    assert by_source["local_compute"] == value("request_prefill_kv_computed_tokens_sum")
    assert by_source["local_cache_hit"] == value("prefix_cache_hits_total")
    assert by_source["local_compute"] + by_source["local_cache_hit"] == 16 * COUNT
    assert by_source["external_kv_transfer"] == 0
    (cache,) = found[PREFIX + "cache_config_info"]
    assert {"block_size", "num_gpu_blocks", "kv_cache_size_tokens", "engine"} <= cache.labels.keys()
    assert (cache.labels["block_size"], cache.value) == ("16", 1)
    of_prompts = [sample for sample in found[PREFIX + "request_prompt_tokens_bucket"] if sample.labels["le"] == "+Inf"]
    assert [sample.value for sample in of_prompts] == [COUNT]


def test_a_request_that_the_server_gave_up_counts_as_aborted_and_a_refused_one_as_refused(tmp_path: Path) -> None:
    front = FrontMetrics("echo")
    front.finished(FinishReason.SlowReader)
    front.finished(FinishReason.Abort)
    front.finished(FinishReason.Rejected)
    status = first_status(engine_json(tmp_path, tmp_path))
    found = exposed(Exporter(front, status, vllm_names=True).render()[0].decode())
    success = {sample.labels["finished_reason"]: sample.value for sample in found[PREFIX + "request_success_total"]}
    assert success == {"stop": 0, "length": 0, "abort": 2, "error": 0}
    assert [sample.value for sample in found[PREFIX + "admission_rejections_total"]] == [1]
    assert PREFIX + "cache_config_info" not in found, "nothing is known of the cache yet"


@pytest.mark.parametrize("asleep", [None, 0.0, 1.0])
def test_an_engine_is_awake_or_its_weights_are_away(asleep: float | None, tmp_path: Path) -> None:
    """One that cannot sleep has no series of ours."""
    subject = Exporter(FrontMetrics("echo"), first_status(engine_json(tmp_path, tmp_path)), True)
    if asleep is not None:
        subject.update([Sample("graphpod_asleep", {}, asleep)])
    found = exposed(subject.render()[0].decode())[f"{PREFIX}engine_sleep_state"]
    states = {one.labels["sleep_state"]: one.value for one in found}
    away = asleep or 0.0
    assert states == {"awake": 1 - away, "weights_offloaded": away, "discard_all": 0}
