"""The engine's own counters, read through the API server from the admin port of the pod."""

from collections.abc import Collection

from prometheus_client.parser import text_string_to_metric_families

from demo.ground import Kubectl
from demo.objects import GaveUp, listed
from demo.service import NAMESPACE, SELECTOR

SHOWN = ("graphpod_graph_replays_total", "graphpod_graph_fallbacks_total")
"""Each pass is one or the other: on a graph, or without one."""

Counters = dict[tuple[str, str], float]


def serving_pod(cluster: Kubectl) -> str:
    """Name of the pod that serves."""
    for pod in listed(cluster, "pods", "-n", NAMESPACE, "-l", SELECTOR):
        ready = [one for one in pod["status"].get("conditions", []) if one["type"] == "Ready"]
        if ready and ready[0]["status"] == "True" and "deletionTimestamp" not in pod["metadata"]:
            return str(pod["metadata"]["name"])
    raise GaveUp(f"no pod with {SELECTOR} in {NAMESPACE} is ready: kubectl -n {NAMESPACE} describe pods")


def exposition(cluster: Kubectl, pod: str) -> str:
    """The text of /metrics."""
    return cluster.kubectl("get", "--raw", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}:8001/proxy/metrics")


def counters(text: str, metrics: Collection[str] = SHOWN) -> Counters:
    """(metric, phase) -> its sum over the other labels, of these `metrics`."""
    sums: Counters = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in metrics and "phase" in sample.labels:
                key = sample.name, sample.labels["phase"]
                sums[key] = sums.get(key, 0.0) + sample.value
    return sums


def table(before: Counters, after: Counters) -> str:
    """Both readings side by side, a line for each metric and phase."""
    keys = sorted(before.keys() | after.keys(), key=lambda key: (SHOWN.index(key[0]), key[1] == "decode"))
    names = [f'{metric}{{phase="{phase}"}}' for metric, phase in keys]
    width = max(map(len, names), default=0)
    rows = [
        f"  {name:<{width}}  {before.get(key, 0):>8.0f}  {after.get(key, 0):>8.0f}"
        for name, key in zip(names, keys, strict=True)
    ]
    return "\n".join([f"  {'counter':<{width}}  {'before':>8}  {'after':>8}", *rows])
