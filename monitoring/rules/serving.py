"""Alerts about queue, KV cache and results of a service."""

from monitoring.rules.graphs import LOG, pod_metrics
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
            "kubectl -n NAMESPACE get gisvc NAME -o wide",
            *pod_metrics("^graphpod_(requests_(running|waiting)|kv_cache_usage_ratio)"),
        ),
        "Add replicas, or set spec.autoscaling. If the KV cache is nearly full, see GraphpodKVCacheSaturated.",
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
        "Lower spec.engine.maxBatch or spec.engine.maxModelLen, set spec.engine.kvCacheDtype: Fp8, or add replicas.",
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
        (LOG, *pod_metrics("^graphpod_nonfinite_logits_total")),
        "Check the checkpoint's files, and try spec.engine.dtype: bfloat16 or float32. If both give NaN, report the "
        "model and the request.",
    ),
)
