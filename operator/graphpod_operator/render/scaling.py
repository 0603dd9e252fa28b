"""The autoscaler of a service: who decides on the number of its pods, and by what.

Its target is the Deployment, whose `replicas` nobody else claims meanwhile: see `handover`.
"""

from __future__ import annotations

from graphpod_operator import quantity
from graphpod_operator.api import Spec
from graphpod_operator.api_running import Autoscaling, ScalingMetric, ScalingProvider
from graphpod_operator.render.subject import Body, Subject
from graphpod_operator.resource import Resource

METRICS: dict[ScalingMetric, str] = {
    ScalingMetric.RunningRequests: "graphpod_requests_running",
    ScalingMetric.WaitingRequests: "graphpod_requests_waiting",
    ScalingMetric.KvCacheUsage: "graphpod_kv_cache_usage_ratio",
}
"""What the engine exports as a replica's load."""

KINDS: dict[ScalingProvider, Resource] = {ScalingProvider.HPA: Resource.HorizontalPodAutoscaler}
"""The object that a provider works by. It has the service's name."""


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


def told(spec: Spec) -> str:
    """Who decides on the number of pods, in words."""
    if (asked := spec.autoscaling) is None:
        return "spec.replicas"
    return f"{asked.provider} keeps {asked.min} to {asked.max} pods, {asked.target} {asked.metric} each"


def horizontal_pod_autoscaler(subject: Subject, scaling: Autoscaling) -> Body:
    """An autoscaler of Kubernetes' own: the metric is one of the pods, averaged over them."""
    average = {"type": "AverageValue", "averageValue": quantity.canonical(scaling.target)}
    metric = {"type": "Pods", "pods": {"metric": {"name": METRICS[scaling.metric]}, "target": average}}
    return subject.child(
        Resource.HorizontalPodAutoscaler,
        subject.name,
        spec={
            "scaleTargetRef": _target(subject),
            "minReplicas": scaling.min,
            "maxReplicas": scaling.max,
            "metrics": [metric],
        },
    )


def _target(subject: Subject) -> Body:
    kind = Resource.Deployment
    return {"apiVersion": kind.api_version, "kind": kind.kind, "name": subject.name}
