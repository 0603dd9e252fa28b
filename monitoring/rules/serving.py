"""Alerts about queue, KV cache, grammars, drafts, traces and results of a service."""

from monitoring.rules.commands import LOG, WIDE, pod_metrics, service_metrics
from monitoring.rules.row import POD, SERVICE, Alert, Severity, by

ALERTS = (
    Alert(
        "GraphpodQueueGrowing",
        Severity.Warning,
        "10m",
        f"{by(SERVICE)} (graphpod_requests_waiting)\n> 2 *\n{by(SERVICE)} (graphpod_requests_running)",
        SERVICE,
        "{{ $value }} requests of {{ $labels.namespace }}/{{ $labels.inferenceservice }} wait.",
        "More than twice as many requests wait as run. The pods do not keep up, and new requests wait longer and "
        "longer.",
        (
            WIDE,
            *service_metrics("^graphpod_(requests_(running|waiting)|kv_cache_usage_ratio)"),
        ),
        "Raise spec.replicas, or set spec.autoscaling. If the KV cache is above 0.95, see "
        "GraphpodKVCacheSaturated first.",
    ),
    Alert(
        "GraphpodKVCacheSaturated",
        Severity.Warning,
        "10m",
        f"{by(POD, 'max')} (graphpod_kv_cache_usage_ratio) > 0.95\n"
        f"and on ({', '.join(POD)})\n"
        f"{by(POD)} (rate(graphpod_preemptions_total[10m])) > 0",
        POD,
        "The KV cache of pod {{ $labels.namespace }}/{{ $labels.pod }} is {{ $value | humanizePercentage }} full, and "
        "requests are set back.",
        "The KV cache is full and requests are preempted: their tokens are computed again.",
        pod_metrics("^graphpod_(kv_cache|preemptions)"),
        "Raise spec.replicas. Without more GPUs set spec.engine.kvCacheDtype: Fp8, or lower spec.engine.maxBatch.",
    ),
    Alert(
        "GraphpodPreemptionsHigh",
        Severity.Warning,
        "10m",
        f"{by(POD)} (rate(graphpod_preemptions_total[10m]))\n/\n{by(POD)} (rate(graphpod_requests_total[10m]))\n> 0.1",
        POD,
        "Pod {{ $labels.namespace }}/{{ $labels.pod }} sets back {{ $value | humanizePercentage }} of its requests.",
        "More than one preemption for ten requests: the KV cache runs out again and again, and the tokens of those "
        "requests are computed twice. Between preemptions the cache may look less than full.",
        pod_metrics("^graphpod_(preemptions_total|requests_(running|waiting)|kv_cache_(usage_ratio|capacity_tokens))"),
        "Raise spec.replicas. Without more GPUs lower spec.engine.maxBatch to about the requests that run between "
        "preemptions.",
    ),
    Alert(
        "GraphpodNonfiniteLogits",
        Severity.Warning,
        "0s",
        f"{by(POD)} (increase(graphpod_nonfinite_logits_total[15m])) > 0",
        POD,
        "The model of pod {{ $labels.namespace }}/{{ $labels.pod }} produces NaN or infinity.",
        "Requests ended with an error because the model's logits were NaN or infinite. Other requests are not "
        "affected.",
        (f"{LOG} | grep -i -E 'nan|finite'", *pod_metrics("^graphpod_nonfinite_logits_total")),
        "Set spec.engine.dtype: float32. If NaN appears again, the checkpoint is damaged or the engine is at fault: "
        "compare the checksums of its files, then report the model.",
    ),
    Alert(
        "GraphpodMasksSlow",
        Severity.Warning,
        "15m",
        f"{by(POD)} (rate(graphpod_grammar_mask_duration_seconds_sum[10m])) > 0.2",
        POD,
        "Pod {{ $labels.namespace }}/{{ $labels.pod }} spends {{ $value | humanizePercentage }} of its time on the "
        "token masks of grammars.",
        "More than 20 % of the engine's time goes to the token masks of structured answers. All requests of a pass "
        "wait for its masks, those without a grammar, too.",
        pod_metrics("^graphpod_(grammar_(requests_total|(mask|compile)_duration_seconds_(sum|count)))"),
        "Raise spec.replicas, or send requests with a grammar to a service of their own. If the mean of a mask (sum "
        "over count) is above 5 ms, a schema is expensive: look for long enums, patterns and deep nesting in it.",
    ),
    Alert(
        "GraphpodDraftsWrong",
        Severity.Info,
        "1h",
        f"{by(SERVICE)} (rate(graphpod_speculation_accepted_tokens_total[30m]))\n/\n"
        f"{by(SERVICE)} (rate(graphpod_speculation_proposed_tokens_total[30m]))\n< 0.1\nunless\n"
        f"{by(SERVICE)} (rate(graphpod_speculation_accepted_length_sum[30m]))\n/\n"
        f"{by(SERVICE)} (rate(graphpod_speculation_accepted_length_count[30m]))\n>= 0.5",
        SERVICE,
        "{{ $value | humanizePercentage }} of the draft tokens of "
        "{{ $labels.namespace }}/{{ $labels.inferenceservice }} are right.",
        "Fewer than one draft token in ten is right, for an hour, and drafts bring a request less than half a token "
        "in a pass. Each pass verifies drafts in addition to its tokens, so the service is slower than without "
        "speculative decoding. Answers are right.",
        service_metrics("^graphpod_(speculation_((proposed|accepted)_tokens_total|accepted_length_(sum|count)))"),
        "Remove spec.engine.speculative, or lower its steps, or its draftTokens where drafts are a tree. The service "
        "rolls out once.",
    ),
    Alert(
        "GraphpodTracesLost",
        Severity.Warning,
        "15m",
        f'{by(POD)} (rate(graphpod_trace_spans_total{{result!="exported"}}[5m]))\n/\n'
        f"{by(POD)} (rate(graphpod_trace_spans_total[5m]))\n> 0.1",
        POD,
        "Pod {{ $labels.namespace }}/{{ $labels.pod }} loses {{ $value | humanizePercentage }} of its trace spans.",
        "More than 10 % of the spans of traced requests do not reach the collector (failed), or are dropped because "
        "too many wait. Requests are not affected.",
        (f"{LOG} | grep traces", *pod_metrics("^graphpod_trace_spans_total")),
        "For failed check that the pod reaches the collector of spec.engine.tracing.endpoint, and read the "
        "collector's log. For dropped lower spec.engine.tracing.samplingRatePerMillion.",
    ),
)
