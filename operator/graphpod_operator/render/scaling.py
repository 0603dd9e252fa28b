"""The autoscaler of a service: who decides on the number of its pods, and by what.

Its target is the Deployment, whose `replicas` nobody else claims meanwhile: see `replica_handover`.
"""

from __future__ import annotations

import json

from graphpod_operator.api import quantity
from graphpod_operator.api.lifecycle import Autoscaling, ScalingMetric
from graphpod_operator.api.spec import Spec
from graphpod_operator.kube.resources import Resource
from graphpod_operator.render.pod_monitor import SERVICE_LABEL
from graphpod_operator.render.subject import Body, Subject

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


def scaled_object(subject: Subject, scaling: Autoscaling) -> Body:
    """An autoscaler of KEDA: it asks Prometheus for the whole load, and divides it by the target."""
    labels = {"namespace": subject.namespace, SERVICE_LABEL: subject.name}
    selector = ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
    asked = {
        "serverAddress": subject.prometheus,
        "query": f"sum({METRICS[scaling.metric]}{{{selector}}})",
        "threshold": f"{quantity.value(scaling.target).normalize():f}",
    }
    return subject.child(
        Resource.ScaledObject,
        subject.name,
        spec={
            "scaleTargetRef": _target(subject),
            "minReplicaCount": scaling.min,
            "maxReplicaCount": scaling.max,
            "triggers": [{"type": "prometheus", "metadata": asked}],
        },
    )


def _target(subject: Subject) -> Body:
    kind = Resource.Deployment
    return {"apiVersion": kind.api_version, "kind": kind.kind, "name": subject.name}
