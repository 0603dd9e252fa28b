"""The autoscaler of a service: who decides on the number of its pods, and by what.

Its target is the Deployment or the LeaderWorkerSet, whose `replicas` no other manager claims meanwhile: see
`replica_handover`.
"""

from __future__ import annotations

import json

from graphpod_operator.api import quantity
from graphpod_operator.api.lifecycle import Autoscaling, ScalingMetric
from graphpod_operator.api.spec import Spec
from graphpod_operator.kube.resources import Resource, workload_name
from graphpod_operator.render.owner import Body, Owner
from graphpod_operator.render.pod_monitor import SERVICE_LABEL

KEDA_PAUSED = "autoscaling.keda.sh/paused"
"""KEDA's annotation of a ScaledObject that leaves the number of pods as it is."""
METRICS: dict[ScalingMetric, str] = {
    ScalingMetric.RunningRequests: "graphpod_requests_running",
    ScalingMetric.WaitingRequests: "graphpod_requests_waiting",
    ScalingMetric.KvCacheUsage: "graphpod_kv_cache_usage_ratio",
}
"""What the engine exports as a replica's load."""


def replicas(spec: Spec) -> int | None:
    """Pods that are to exist; None while an autoscaler decides."""
    if spec.suspend:
        return 0
    return spec.replicas if spec.autoscaling is None else None


def fewest(spec: Spec) -> int:
    """Pods that are to exist at least."""
    if spec.suspend:
        return 0
    return spec.replicas if spec.autoscaling is None else spec.autoscaling.min


def decided_by(spec: Spec) -> str:
    """Who decides on the number of pods, or of groups, in words."""
    if (asked := spec.autoscaling) is None:
        return "spec.replicas"
    pods = "pods" if spec.parallelism.nodes == 1 else f"groups of {spec.parallelism.nodes} pods"
    return f"{asked.provider} keeps {asked.min} to {asked.max} {pods}, {asked.target} {asked.metric} each"


def horizontal_pod_autoscaler(owner: Owner, scaling: Autoscaling, kind: Resource, held: bool = False) -> Body:
    """An autoscaler of Kubernetes' own: the metric is one of the pods, averaged over them. `kind` makes the pods.
    `held`: it keeps the number of pods, within its bounds.
    """
    average = {"type": "AverageValue", "averageValue": quantity.canonical(scaling.target)}
    metric = {"type": "Pods", "pods": {"metric": {"name": METRICS[scaling.metric]}, "target": average}}
    return owner.child(
        Resource.HorizontalPodAutoscaler,
        owner.name,
        spec={
            "scaleTargetRef": _target(owner, kind),
            "minReplicas": scaling.min,
            "maxReplicas": scaling.max,
            "metrics": [metric],
            **({"behavior": {way: {"selectPolicy": "Disabled"} for way in ("scaleUp", "scaleDown")}} if held else {}),
        },
    )


def scaled_object(owner: Owner, scaling: Autoscaling, kind: Resource, held: bool = False) -> Body:
    """An autoscaler of KEDA: it asks Prometheus for the whole load, and divides it by the target. `kind` and `held`: as
    above.
    """
    labels = {"namespace": owner.namespace, SERVICE_LABEL: owner.name}
    selector = ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
    asked = {
        "serverAddress": owner.installed.prometheus or "",
        "query": f"sum({METRICS[scaling.metric]}{{{selector}}})",
        "threshold": f"{quantity.value(scaling.target).normalize():f}",
    }
    body = owner.child(
        Resource.ScaledObject,
        owner.name,
        spec={
            "scaleTargetRef": _target(owner, kind),
            "minReplicaCount": scaling.min,
            "maxReplicaCount": scaling.max,
            "triggers": [{"type": "prometheus", "metadata": asked}],
        },
    )
    if held:
        body["metadata"]["annotations"] = {KEDA_PAUSED: "true"}
    return body


def _target(owner: Owner, kind: Resource) -> Body:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "name": workload_name(kind, owner.name)}
