"""The PodMonitor: Prometheus reads the pods' admin ports."""

from __future__ import annotations

from graphpod_operator.kube.resources import Resource
from graphpod_operator.render.subject import Body, Subject

SERVICE_LABEL = "inferenceservice"
"""The series' label that names the service."""


def pod_monitor(subject: Subject) -> Body:
    """`/metrics` of every pod of the service, each series with the service's name."""
    named = {
        "action": "replace",
        "sourceLabels": ["__meta_kubernetes_pod_label_graphpod_dev_inferenceservice"],
        "targetLabel": SERVICE_LABEL,
    }
    return subject.child(
        Resource.PodMonitor,
        subject.name,
        spec={
            "selector": {"matchLabels": subject.selector},
            "podMetricsEndpoints": [{"port": "admin", "path": "/metrics", "relabelings": [named]}],
        },
    )
