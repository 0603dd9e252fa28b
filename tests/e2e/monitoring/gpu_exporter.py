"""dcgm-exporter's Service and ServiceMonitor as its Helm chart has them. What answers is a fixture on this machine."""

from typing import Any

from tests.monitoring.selected import LABELS

NAME, NAMESPACE = "dcgm-exporter", "gpu-operator"


def objects(address: str) -> list[dict[str, Any]]:
    """For an exporter at an address of this machine, HOST:PORT, which pods and a Prometheus reach."""
    host, _, port = address.rpartition(":")
    named = {"app.kubernetes.io/name": NAME}
    metadata = {"name": NAME, "namespace": NAMESPACE, "labels": named}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"ports": [{"name": "metrics", "port": 9400, "targetPort": int(port)}]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**metadata, "labels": {**named, "kubernetes.io/service-name": NAME}},
            "addressType": "IPv4",
            "ports": [{"name": "metrics", "port": int(port)}],
            "endpoints": [{"addresses": [host]}],
        },
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "ServiceMonitor",
            "metadata": {**metadata, "labels": {**named, **LABELS}},
            "spec": {
                "selector": {"matchLabels": named},
                "endpoints": [{"port": "metrics", "path": "/metrics", "honorLabels": True}],
            },
        },
    ]
