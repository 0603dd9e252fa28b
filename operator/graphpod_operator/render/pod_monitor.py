"""The PodMonitor: Prometheus reads the pods' admin ports."""

from __future__ import annotations

from graphpod_operator.kube.resources import Resource
from graphpod_operator.render.owner import Body, Owner

SERVICE_LABEL = "inferenceservice"
"""The series' label that names the service."""
SAMPLE_LIMIT = 10_000
"""Series of a scrape; an engine exports at most 3500 (`MOST_SERIES`). Of a pod that writes more, Prometheus stores
nothing, so the pod cannot fill it.
"""


def pod_monitor(owner: Owner) -> Body:
    """`/metrics` of every pod of the service, each series with the service's name. It has the labels by which a
    Prometheus selects it: the installer's, and over them the service's.
    """
    named = {
        "action": "replace",
        "sourceLabels": ["__meta_kubernetes_pod_label_graphpod_dev_inferenceservice"],
        "targetLabel": SERVICE_LABEL,
    }
    return owner.child(
        Resource.PodMonitor,
        owner.name,
        # the operator's own labels last: by them it recognises its objects
        {**owner.installed.monitor_labels, **owner.spec.monitoring.labels, **owner.labels},
        spec={
            "selector": {"matchLabels": owner.selector},
            "sampleLimit": SAMPLE_LIMIT,
            "podMetricsEndpoints": [{"port": "admin", "path": "/metrics", "relabelings": [named]}],
        },
    )
