"""The metric table: every metric of engine and operator, once. The exporters are made from it, so a name that is
not here cannot be exported; docs, dashboards and alert rules are checked against it.

Label values are the API's words (`Breakable`, `prefill`). Graph metrics carry `backend` (CudaGraph or Recorder):
the recorder must not pass for a speed-up. Operator rows named `controller_runtime_*` and `workqueue_*` keep
controller-runtime's names so that existing dashboards work.
"""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Prometheus type."""

    Counter = "counter"
    Gauge = "gauge"
    Histogram = "histogram"


class Process(StrEnum):
    """Who exports the metric."""

    Engine = "engine"
    Operator = "operator"


@dataclass(frozen=True, slots=True)
class Metric:
    """One row. Counter names end in `_total`; units are in the name. `buckets` are upper bounds without +Inf."""

    name: str
    kind: Kind
    process: Process
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()


LAUNCH_SECONDS = tuple(round(0.00002 * 1.8**step, 6) for step in range(21))
FORWARD_SECONDS = tuple(round(0.00025 * 1.6**step, 6) for step in range(21))
GRAMMAR_SECONDS = (
    0.00002,
    0.00005,
    0.0001,
    0.0002,
    0.0005,
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
)
CAPTURE_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
TTFT_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 40, 80)
WAIT_SECONDS = (0.001, 0.002, *TTFT_SECONDS)
"""Of a request that waits little: an empty queue takes less than a millisecond, a short prompt a few of them."""
ITL_SECONDS = (
    *(0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03),
    *(0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2),
)
E2E_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 240)
FEW = (0, 1, 2, 3, 5, 10, 20)
ACCEPTED = (*range(9), 12, 16)
CHOICES = (1, 2, 5, 10, 20)
LENGTH_TOKENS = tuple(digit * 10**power for power in range(6) for digit in (1, 2, 5))
GRAPH_ROWS = tuple(
    row
    for first, last, step in (
        *((1, 16, 1), (20, 64, 4), (72, 256, 8), (272, 512, 16)),
        *((576, 1024, 64), (1280, 4096, 256), (4608, 16384, 512)),
    )
    for row in range(first, last + 1, step)
)
"""Every size of the default ladders up to 16384 is one of these bounds, so that a ladder of bounds can be judged exactly:
a graph of that size takes whole buckets."""
RECONCILE_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
READY_SECONDS = (1, 2, 5, 10, 20, 30, 60, 120, 180, 300, 600, 900, 1800, 3600)

_E, _O = Process.Engine, Process.Operator
_C, _G, _H = Kind.Counter, Kind.Gauge, Kind.Histogram
_GRAPH = ("phase", "policy", "backend")

# fmt: off
METRICS: tuple[Metric, ...] = (
    # identity and warm-up
    Metric("graphpod_build_info", _G, _E, ("version", "torch", "backend"), "Always 1; what this engine was built from."),
    Metric("graphpod_graph_policy_info", _G, _E, ("phase", "requested", "planned", "effective", "backend"), "Always 1; the policies requested, planned and effective."),
    Metric("graphpod_graph_decision_info", _G, _E, ("phase", "rule", "stage", "outcome", "backend"), "Always 1; the rules that excluded, adjusted or overrode a policy, in the plan or at the start."),
    Metric("graphpod_attention_info", _G, _E, ("kernels",), "Always 1; whose kernels compute attention."),
    Metric("graphpod_weights_info", _G, _E, ("form",), "Always 1; how the matrices of layers are held: the type, or the form of FP8."),
    Metric("graphpod_warmup_state", _G, _E, ("state",), "1 for the current state of the start, 0 for the others."),
    Metric("graphpod_ready_timestamp_seconds", _G, _E, (), "Unix time at which the start ended and the pod could serve. Before that it has no series."),
    Metric("graphpod_warmup_progress_ratio", _G, _E, (), "Captured sizes over planned sizes, 0 to 1."),
    Metric("graphpod_startup_stage_duration_seconds", _G, _E, ("stage",), "Seconds each stage of the start took."),
    Metric("graphpod_compiled_functions", _G, _E, ("source",), "Functions that the start compiled (source=compiler), or found compiled in its cache on disk (cache)."),
    Metric("graphpod_memory_bytes", _G, _E, ("kind",), "Memory of the device (on a CPU, of the host) that the engine has reserved: kind=weights or kv_cache."),
    # capture
    Metric("graphpod_graph_sizes_planned", _G, _E, _GRAPH, "Sizes on the planned ladder."),
    Metric("graphpod_graphs", _G, _E, _GRAPH, "Sizes captured and alive."),
    Metric("graphpod_graph_segments", _G, _E, _GRAPH, "Segments of one forward pass (1 for Full, breaks + 1 for Breakable)."),
    Metric("graphpod_graph_max_size_tokens", _G, _E, _GRAPH, "Largest captured size; 0 without graphs. Above it a pass runs eagerly."),
    Metric("graphpod_graph_size_capture_seconds", _G, _E, (*_GRAPH, "size"), "Seconds that the capture of this size took, of graphs alive now."),
    Metric("graphpod_graph_size_memory_bytes", _G, _E, (*_GRAPH, "size", "kind"), "Bytes by which the capture of this size, largest first, raised kind=pool or driver."),
    Metric("graphpod_graph_memory_bytes", _G, _E, (*_GRAPH, "kind"), "Memory held by graphs: kind=pool (allocator) or driver."),
    Metric("graphpod_graph_captures_total", _C, _E, (*_GRAPH, "result"), "Captures by result (ok, error)."),
    Metric("graphpod_graph_capture_failures_total", _C, _E, ("phase", "backend", "reason"), "Failed captures and compilations by rule id."),
    Metric("graphpod_graph_capture_duration_seconds", _H, _E, _GRAPH, "Seconds to capture one size, captures that failed included.", CAPTURE_SECONDS),
    Metric("graphpod_graph_selfchecks_total", _C, _E, (*_GRAPH, "result"), "Graphs replayed against uncaptured code before Ready (passed, failed)."),
    Metric("graphpod_graph_recaptures_total", _C, _E, ("phase", "backend"), "Captures attempted after Ready; must stay 0."),
    Metric("graphpod_rank_memory_bytes", _G, _E, ("rank", "kind"), "Memory of its device that each of several ranks has reserved: kind=weights, kv_cache or graphs. With one rank it has no series."),
    Metric("graphpod_rank_capture_seconds", _G, _E, ("rank",), "Seconds that each of several ranks took to capture its graphs, of graphs alive now. With one rank it has no series."),
    Metric("graphpod_expert_rows_total", _C, _E, ("rank",), "Rows that each rank of the first stage computed of its experts: pairs of a token and a chosen expert, of all layers, padding included. Up to 32 passes late. Without expert parallel it has no series."),
    # replay
    Metric("graphpod_forward_passes_total", _C, _E, ("phase", "policy"), "Forward passes of the model; policy=Disabled ran eagerly."),
    Metric("graphpod_forward_duration_seconds", _H, _E, ("phase", "policy"), "Device time of a forward pass, from its first kernel to its last; policy=Disabled ran eagerly.", FORWARD_SECONDS),
    Metric("graphpod_forward_launch_duration_seconds", _H, _E, ("phase", "policy"), "Host time to launch a forward pass; on a CPU the pass has then run.", LAUNCH_SECONDS),
    Metric("graphpod_eager_passes_total", _C, _E, ("phase",), "Passes of the model body outside any graph, counted by a hook on the body."),
    Metric("graphpod_graph_replays_total", _C, _E, _GRAPH, "Forward passes that ran on a graph."),
    Metric("graphpod_graph_fallbacks_total", _C, _E, ("phase", "reason", "backend"), "Forward passes that ran eagerly, each with one reason."),
    Metric("graphpod_graph_tokens_total", _C, _E, ("phase", "kind", "backend"), "Rows computed by replays: kind=real or padding."),
    Metric("graphpod_graph_size_replays_total", _C, _E, (*_GRAPH, "size"), "Forward passes that ran on the graph of this size, of each size captured."),
    Metric("graphpod_graph_size_padding_tokens_total", _C, _E, (*_GRAPH, "size"), "Rows of padding that the graph of this size computed."),
    Metric("graphpod_graph_requested_rows", _H, _E, ("phase", "backend"), "Rows before padding of the forward passes up to the largest graph: those replayed, and those that PaddingGate refused.", GRAPH_ROWS),
    # serving
    Metric("graphpod_requests_running", _G, _E, (), "Requests that hold KV pages."),
    Metric("graphpod_requests_waiting", _G, _E, (), "Requests in the queue, and those that wait until their grammar is compiled."),
    Metric("graphpod_kv_cache_usage_ratio", _G, _E, (), "KV pages in use over all pages, 0 to 1."),
    Metric("graphpod_kv_cache_capacity_tokens", _G, _E, (), "Tokens the KV cache can hold."),
    Metric("graphpod_kv_cache_info", _G, _E, ("page_size", "pages"), "Always 1; tokens of a KV page, and the pages that requests can own."),
    Metric("graphpod_prefill_budget_tokens", _G, _E, (), "Most prompt tokens of a prefill pass between two decode passes."),
    Metric("graphpod_prefix_cache_queried_tokens_total", _C, _E, (), "Prompt tokens of admitted requests, looked up in the prefix cache."),
    Metric("graphpod_prefix_cache_hit_tokens_total", _C, _E, (), "Those of them that the prefix cache had."),
    Metric("graphpod_prefix_cache_evicted_tokens_total", _C, _E, (), "Tokens evicted from the prefix cache because their pages were needed."),
    Metric("graphpod_prefix_cache_tokens", _G, _E, (), "Tokens that the prefix cache holds."),
    Metric("graphpod_prefix_cache_tier_hit_tokens_total", _C, _E, ("tier",), "Tokens that the prefix cache had, by where they were: tier=device, host or file. Without a host KV cache it has no series."),
    Metric("graphpod_host_cache_capacity_bytes", _G, _E, (), "Host memory that holds KV pages; on a GPU it grows after Ready until it is pinned. Without a host KV cache no graphpod_host_cache metric has a series."),
    Metric("graphpod_host_cache_used_bytes", _G, _E, (), "Host memory in which KV pages are."),
    Metric("graphpod_host_cache_copied_bytes_total", _C, _E, ("direction",), "Bytes of KV pages copied, direction=store (to the host) or load (to the device)."),
    Metric("graphpod_rank_host_cache_copied_bytes_total", _C, _E, ("rank", "direction"), "Bytes of KV pages that each of several ranks copied, its part of each page: direction=store or load. With one rank it has no series."),
    Metric("graphpod_host_cache_copy_seconds_total", _C, _E, ("direction",), "Time that these copies took, by the device's clock where it has one; of several ranks those of the first one."),
    Metric("graphpod_host_cache_waits_total", _C, _E, (), "Passes that were launched behind copies of their own pages that had not landed."),
    Metric("graphpod_host_cache_full_waits_total", _C, _E, (), "Passes that were launched behind all copies, after one that failed or in the debug mode poison."),
    Metric("graphpod_host_cache_request_wait_seconds_total", _C, _E, (), "Seconds that requests waited for copies of their pages, from their admission to their first pass."),
    Metric("graphpod_host_cache_evicted_tokens_total", _C, _E, (), "Tokens whose pages the host KV cache had no room for any more."),
    Metric("graphpod_host_cache_skipped_tokens_total", _C, _E, (), "Tokens that the host KV cache had, and that were computed because that takes less time."),
    Metric("graphpod_host_cache_failures_total", _C, _E, ("reason",), "Failures of the host KV cache, whose tokens are then computed: Store, Load (copies), Allocation (of host memory)."),
    Metric("graphpod_host_cache_file_capacity_bytes", _G, _E, (), "Bytes that the pod's files of KV pages may have. Without files no graphpod_host_cache_file metric has a series."),
    Metric("graphpod_host_cache_file_used_bytes", _G, _E, (), "Bytes that the pod's files of KV pages have."),
    Metric("graphpod_host_cache_file_moved_bytes_total", _C, _E, ("direction",), "Bytes of KV pages in files, direction=write or read."),
    Metric("graphpod_host_cache_file_move_seconds_total", _C, _E, ("direction",), "Time that these took, summed over the files: four threads read at the same time."),
    Metric("graphpod_host_cache_file_request_wait_seconds_total", _C, _E, (), "Seconds that requests waited in the queue for pages from files."),
    Metric("graphpod_host_cache_file_evicted_tokens_total", _C, _E, (), "Tokens whose files were deleted to make room."),
    Metric("graphpod_host_cache_file_failures_total", _C, _E, ("reason",), "Pages that did not come to files, or from them; their tokens are computed: Folder (it cannot be used), Full, Write, Overtaken (the host pool needed the slot first), Missing, Corrupt, Read, Late (a request waits no longer)."),
    Metric("graphpod_asleep", _G, _E, (), "1 while the weights and the KV cache are off the device, else 0. Without spec.engine.sleep it has no series."),
    Metric("graphpod_sleep_freed_bytes", _G, _E, (), "Bytes that the latest sleep freed on the device, as its memory was measured before and after. Without spec.engine.sleep it has no series."),
    Metric("graphpod_sleep_transition_duration_seconds", _H, _E, ("transition",), "Seconds until weights had left the device (transition=sleep), were back (wake) or were replaced and checked (reload).", CAPTURE_SECONDS),
    Metric("graphpod_sleep_failures_total", _C, _E, ("transition",), "Times that weights could not leave the device (transition=sleep), come back (wake) or be replaced (reload); the engine went on as it was."),
    Metric("graphpod_iteration_tokens", _H, _E, ("model_name",), "Tokens of a landed pass: those generated, and the prompts that it completed.", LENGTH_TOKENS),
    Metric("graphpod_preemptions_total", _C, _E, (), "Requests set back to the queue because pages ran out."),
    Metric("graphpod_grammar_compile_duration_seconds", _H, _E, (), "Compilation of one answer grammar, those that were refused included.", GRAMMAR_SECONDS),
    Metric("graphpod_grammar_cache_hits_total", _C, _E, (), "Requests whose grammar had been compiled before."),
    Metric("graphpod_grammar_mask_duration_seconds", _H, _E, (), "The host's time to write the token masks of one pass.", GRAMMAR_SECONDS),
    Metric("graphpod_speculation_passes_total", _C, _E, ("method",), "Decode passes that verified draft tokens. Without speculative decoding it has no series."),
    Metric("graphpod_speculation_proposed_tokens_total", _C, _E, ("method",), "Draft tokens that were verified."),
    Metric("graphpod_speculation_accepted_tokens_total", _C, _E, ("method",), "Draft tokens that were right. Behind the last token of an answer they count, too."),
    Metric("graphpod_speculation_accepted_length", _H, _E, ("method",), "Draft tokens of a request that were right in one pass.", ACCEPTED),
    Metric("graphpod_speculation_max_batch", _G, _E, ("method",), "Requests up to which a decode pass verifies drafts."),
    Metric("graphpod_speculation_plain_rows_total", _C, _E, ("method", "reason"), "Requests that decoded a token without drafts, by reason: Batch (more of them than drafts pay for), Behind (the draft model has not read all of the text yet), Grammar (a thinking budget, too), Penalties (of a service whose drafts are trees), NothingFound (the method had none) or Room (one token is left, or KV pages are short)."),
    Metric("graphpod_nonfinite_logits_total", _C, _E, (), "Requests ended because the model's logits had a NaN or an infinity where a token was due."),
    Metric("graphpod_pooled_prompts_total", _C, _E, ("model_name", "kind"), "Prompts accepted for their vectors, by what asked for them: embedding, score, rerank."),
    Metric("graphpod_prompt_tokens_total", _C, _E, ("model_name",), "Prompt tokens accepted."),
    Metric("graphpod_grammar_requests_total", _C, _E, ("model_name", "kind"), "Requests whose answers must follow a grammar, by its kind."),
    Metric("graphpod_generation_tokens_total", _C, _E, ("model_name",), "Tokens generated."),
    Metric("graphpod_requests_total", _C, _E, ("model_name", "finish_reason"), "Requests ended: stop, length, abort, error, rejected, slow_reader."),
    Metric("graphpod_time_to_first_token_seconds", _H, _E, ("model_name",), "Request received to first token.", TTFT_SECONDS),
    Metric("graphpod_inter_token_latency_seconds", _H, _E, ("model_name",), "Between two tokens of one request.", ITL_SECONDS),
    Metric("graphpod_e2e_request_latency_seconds", _H, _E, ("model_name",), "Request received to last token.", E2E_SECONDS),
    Metric("graphpod_request_queue_time_seconds", _H, _E, ("model_name",), "Request received by the engine to first admitted to a pass.", WAIT_SECONDS),
    Metric("graphpod_request_prefill_time_seconds", _H, _E, ("model_name",), "First admitted to first token.", WAIT_SECONDS),
    Metric("graphpod_request_inference_time_seconds", _H, _E, ("model_name",), "First admitted to last token, of requests that ended by stop or length.", E2E_SECONDS),
    Metric("graphpod_request_decode_time_seconds", _H, _E, ("model_name",), "First token to last token, of requests that ended by stop or length.", E2E_SECONDS),
    Metric("graphpod_time_per_output_token_seconds", _H, _E, ("model_name",), "Mean time of a token after the first, of requests answered in full.", ITL_SECONDS),
    Metric("graphpod_request_prompt_tokens", _H, _E, ("model_name",), "Prompt tokens of requests answered in full.", LENGTH_TOKENS),
    Metric("graphpod_request_generation_tokens", _H, _E, ("model_name",), "Generated tokens of requests answered in full.", LENGTH_TOKENS),
    Metric("graphpod_request_max_tokens", _H, _E, ("model_name",), "Most tokens that requests could generate (max_tokens, or what the context leaves), of requests that ended by stop or length.", LENGTH_TOKENS),
    Metric("graphpod_request_prefill_computed_tokens", _H, _E, ("model_name",), "Prompt tokens that were computed, not found in the prefix cache, of requests at their first token.", LENGTH_TOKENS),
    Metric("graphpod_request_choices", _H, _E, ("model_name",), "Answers generated for a prompt (n or best_of), of each prompt accepted.", CHOICES),
    Metric("graphpod_request_preemptions", _H, _E, ("model_name",), "Times that a request was set back to the queue, of requests that ended by stop or length.", FEW),
    Metric("graphpod_http_requests_total", _C, _E, ("handler", "method", "code"), "HTTP answers by route."),
    Metric("graphpod_trace_spans_total", _C, _E, ("result",), "Spans of traced requests: exported, failed (the collector did not take them), dropped (too many waited). Without tracing it has no series."),
    # operator
    Metric("graphpod_operator_build_info", _G, _O, ("version", "resolver_revision"), "Always 1; what this operator was built from."),
    Metric("graphpod_operator_inferenceservices", _G, _O, ("ready", "prefill", "decode"), "Services by Ready condition and effective policies, counted from the store."),
    Metric("graphpod_operator_service_phases", _G, _O, ("phase", "available"), "Services by status.phase, and by the condition Available: True while a pod serves, one of an earlier generation, too."),
    Metric("graphpod_operator_policy_degradations_total", _C, _O, ("phase", "planned", "effective"), "Times that a service's effective policy became weaker than the planned one."),
    Metric("graphpod_operator_time_to_ready_seconds", _H, _O, (), "From the first look at a new generation of a service to Ready.", READY_SECONDS),
    Metric("graphpod_operator_object_skipped", _G, _O, ("kind", "namespace", "name"), "1 for each object that is larger or nested deeper than the operator reads; at most 64 of them are named."),
    Metric("graphpod_operator_kind_unlisted", _G, _O, ("kind",), "1 for each optional kind that the cluster serves, and whose objects the operator failed to list the last time; 0 for the others."),
    Metric("graphpod_operator_objective_seconds", _G, _O, ("namespace", "inferenceservice", "objective", "bound"), "Objective of a service from spec.slo (objective=ttft or itl), and the histogram's bound that alerts count it by; at most 500 services are named."),
    Metric("graphpod_operator_drift_corrections_total", _C, _O, ("kind",), "Children found different from the plan and put back."),
    Metric("graphpod_operator_apply_conflicts_total", _C, _O, ("kind",), "Applies refused because another writer owns a field."),
    Metric("graphpod_operator_warmup_reads_total", _C, _O, ("result",), "Readings of the warm-up endpoint of a pod: ok, mismatch, unreachable."),
    Metric("graphpod_operator_weights_orders_total", _C, _O, ("order", "result"), "Orders that the operator sent to the admin ports of pods: sleep, wake or reload; ok (the engine took or refused it) or unreachable."),
    Metric("graphpod_operator_last_success_timestamp_seconds", _G, _O, (), "Unix time of the last successful reconcile."),
    Metric("graphpod_operator_watch_failures_total", _C, _O, (), "Errors that ended a watch, which was then restarted."),
    Metric("leader_election_master_status", _G, _O, ("name",), "1 while this operator may write, 0 while another leads or its Lease was not renewed."),
    Metric("controller_runtime_reconcile_total", _C, _O, ("controller", "result"), "Reconciles by result: success, error, requeue, requeue_after."),
    Metric("controller_runtime_reconcile_errors_total", _C, _O, ("controller",), "Reconciles that ended in an error."),
    Metric("controller_runtime_reconcile_time_seconds", _H, _O, ("controller",), "Seconds of one reconcile.", RECONCILE_SECONDS),
    Metric("controller_runtime_active_workers", _G, _O, ("controller",), "Workers busy now."),
    Metric("controller_runtime_max_concurrent_reconciles", _G, _O, ("controller",), "Workers in total."),
    Metric("workqueue_depth", _G, _O, ("name",), "Keys waiting in the queue."),
    Metric("workqueue_adds_total", _C, _O, ("name",), "Keys put into the queue."),
    Metric("workqueue_retries_total", _C, _O, ("name",), "Keys put back after an error."),
    Metric("workqueue_queue_duration_seconds", _H, _O, ("name",), "Seconds a key waited in the queue.", RECONCILE_SECONDS),
    Metric("workqueue_work_duration_seconds", _H, _O, ("name",), "Seconds a worker had a key.", RECONCILE_SECONDS),
    Metric("workqueue_unfinished_work_seconds", _G, _O, ("name",), "Seconds the busy workers have had their keys, in total."),
    Metric("workqueue_longest_running_processor_seconds", _G, _O, ("name",), "Seconds of the worker that has had its key longest."),
    Metric("rest_client_requests_total", _C, _O, ("code", "method"), "Answers of the API server."),
    Metric("rest_client_request_duration_seconds", _H, _O, ("verb",), "Seconds until the API server began to answer.", RECONCILE_SECONDS),
)
# fmt: on

OBJECTIVES_NAMED = 500
"""Services whose objectives the operator exports at most, the first by namespace and name."""
MOST_SERIES: dict[Process, int] = {Process.Engine: 3500, Process.Operator: 1600}
"""Series of one process at most, those of `process_*` and `python_*` included: with ladders as long as the API allows and
whatever clients send, and with any number of services.
"""

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}


def of(process: Process) -> tuple[Metric, ...]:
    """The rows that `process` exports."""
    return tuple(metric for metric in METRICS if metric.process is process)
