"""Operator, engines, kube-state-metrics, Prometheus and Alertmanager on one cluster, tied by our monitors alone."""

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from stubs.proxy import Proxy
from testbed import Cluster
from testbed.binaries.foreign import Foreign
from testbed.binaries.golang import binary
from tests.api.chart.rendered import NAMESPACE as SYSTEM
from tests.api.chart.rendered import objects, render
from tests.api.operator.pods import running, set_status
from tests.api.operator.process import USER, Operator, grant, serve
from tests.clusters import own_cluster
from tests.crd import serve_crd
from tests.eventually import Eventually
from tests.monitoring import selected
from tests.monitoring.kubelet import Kubelet, Part
from tests.monitoring.prometheus import Prometheus
from tests.monitoring.scaled import SCRAPE_SECONDS, scaled
from tests.monitoring.selected import LABELS, NAMESPACE, Selected
from tests.places import Place
from tests.ports import free_port

QUICK = """
from graphpod_operator.observe import warmup_poller
from graphpod_operator.status import optional_findings
from graphpod_operator.watch import optional_kinds, relist, workqueue
optional_kinds.EVERY_SECONDS = 1.0
relist.EVERY_SECONDS = 10.0
workqueue.LONGEST_PAUSE = 5.0
warmup_poller.SCRAPE_POLL_SECONDS = warmup_poller.SCRAPE_POLL_MOST = 1.0
optional_findings.GRACE_SECONDS = 15.0
"""
"""The operator's own long times, divided like those of the rules."""
MACHINE = "this-machine"
RULES = "monitoring.rules"
MONITOR = "monitoring.serviceMonitor"


@dataclass
class Stack:
    """All of it, while it runs. `operator` may be stopped and replaced; `proxy` is between it and the API server."""

    cluster: Cluster
    folder: Path
    operator: Operator
    proxy: Proxy
    kubelet: Kubelet
    prometheus: Prometheus
    alertmanager: str
    eventually: Eventually

    def select(self) -> Selected:
        """Do what the Prometheus operator does when an object changed."""
        found = selected.configure(self.cluster, self.folder, SCRAPE_SECONDS, self.alertmanager)
        selected.reload(self.prometheus)
        return found

    def place(self, namespace: str) -> Place:
        """A namespace for services."""
        made = Place(self.cluster, namespace)
        made.create()
        return made

    def firing(self) -> set[tuple[str, str]]:
        """(alert, service) of what Alertmanager holds; alerts about no service have an empty one."""
        found = selected.alerts(self.alertmanager)
        return {(one["alertname"], one.get("inferenceservice", "")) for one in found}

    def scraped(self) -> bool:
        """Whether the operator answers Prometheus."""
        return self.prometheus.value('up{job="graphpod-operator"}') == 1

    def targets(self) -> dict[str, str]:
        """Health of each target, by `job pod`."""
        found = self.prometheus.get("targets")["activeTargets"]
        return {f"{one['labels']['job']} {one['labels'].get('pod', '')}": one["health"] for one in found}


@contextmanager
def stack(folder: Path, parts: Mapping[str, Part]) -> Iterator[Stack]:
    """The stack over a fresh API server, with the chart's rules, scaled. `parts`: what engines of services play."""
    with own_cluster("test-alerts", "api") as cluster:
        serve_crd(cluster)
        grant(cluster)
        place = Place(cluster, SYSTEM)
        for namespace in (SYSTEM, NAMESPACE):
            Place(cluster, namespace).create()
        for foreign in (Foreign.PodMonitor, Foreign.ServiceMonitor, Foreign.PrometheusRule):
            serve(place, foreign)
        with Proxy(cluster.token_kubeconfig(USER)).serving() as proxy:
            kubeconfig = proxy.kubeconfig(cluster.token_kubeconfig(USER), folder / "kubeconfig")
            operator = Operator(
                cluster,
                "http://{ip}:8001",
                folder / "operator.log",
                kubeconfig=kubeconfig,
                arguments=(f"--pod-monitor-labels={json.dumps(LABELS)}", "--workers=4"),
                before=QUICK,
            )
            eventually = Eventually(lambda: [cluster], logs=[operator.log])
            operator.start()
            try:
                eventually(operator.idle, timeout=120)
                with _around(cluster, folder, operator, proxy, parts, eventually) as made:
                    yield made
            finally:
                if operator.process is not None and operator.process.poll() is None:
                    operator.stop()


@contextmanager
def _around(
    cluster: Cluster,
    folder: Path,
    operator: Operator,
    proxy: Proxy,
    parts: Mapping[str, Part],
    eventually: Eventually,
) -> Iterator[Stack]:
    metrics_port, address = free_port(), own_address(cluster)
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": MACHINE}}
    cluster.kubectl("create", "-f", "-", input=json.dumps(node))
    _chart(cluster)
    _pod(cluster, SYSTEM, "graphpod-operator-1", _selector(cluster), ("metrics", operator.port), address)
    ksm = {"app.kubernetes.io/name": "kube-state-metrics"}
    _pod(cluster, NAMESPACE, "kube-state-metrics-1", ksm, ("http", metrics_port), address)
    cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(_kube_state_metrics(ksm)))
    with (
        selected.alertmanager(folder) as manager,
        selected.kube_state_metrics(cluster, folder, metrics_port),
        Kubelet(cluster, parts).playing() as kubelet,
    ):
        selected.configure(cluster, folder, SCRAPE_SECONDS, manager)
        with selected.prometheus(folder) as prometheus:
            yield Stack(cluster, folder, operator, proxy, kubelet, prometheus, manager, eventually)


def own_address(cluster: Cluster) -> str:
    """An address of this machine that an EndpointSlice may name: loopback may not be one."""
    server = urlsplit(cluster.address)
    assert server.hostname is not None
    with socket.create_connection((server.hostname, server.port or 443), timeout=10) as probe:
        found: str = probe.getsockname()[0]
        return found


def _chart(cluster: Cluster) -> None:
    """Service, ServiceMonitor and PrometheusRule as the chart renders them; of the rules every duration is scaled."""
    words = [f"{key}.enabled=true" for key in (RULES, MONITOR)] + [
        f"{key}.labels.release=stack" for key in (RULES, MONITOR)
    ]
    done = render(binary("helm4"), *words)
    assert done.returncode == 0, done.stderr
    kinds = {found["kind"]: found for found in objects(done.stdout)}
    rule = kinds["PrometheusRule"]
    rule["spec"]["groups"] = scaled(rule["spec"]["groups"])
    wanted = [kinds["Service"], kinds["ServiceMonitor"], rule]
    cluster.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump_all(wanted))


def _selector(cluster: Cluster) -> dict[str, str]:
    found: dict[str, str] = cluster.read(f"/api/v1/namespaces/{SYSTEM}/services/graphpod-operator")["spec"]["selector"]
    return found


def _pod(
    cluster: Cluster, namespace: str, name: str, labels: dict[str, str], port: tuple[str, int], address: str
) -> None:
    """A pod that stands for a process of this machine."""
    container = {"name": "main", "image": "none", "ports": [{"name": port[0], "containerPort": port[1]}]}
    rights = {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "containers": [container | {"securityContext": rights}],
            "automountServiceAccountToken": False,
            # endpoints have a node, which no kubelet keeps Ready here
            "nodeName": MACHINE,
            "tolerations": [{"operator": "Exists"}],
        },
    }
    Eventually(lambda: [cluster])(
        lambda: cluster.kubectl("get", "serviceaccount", "default", "-n", namespace, "-o", "name")
    )
    cluster.kubectl("create", "-f", "-", input=json.dumps(pod))
    status = running(True)
    status["containerStatuses"][0]["name"] = "main"
    set_status(cluster, pod, {**status, "podIP": address, "podIPs": [{"ip": address}]})


def _kube_state_metrics(labels: dict[str, str]) -> list[dict[str, Any]]:
    """Service and ServiceMonitor as the chart of kube-prometheus-stack has them for its kube-state-metrics."""
    metadata = {"name": "kube-state-metrics", "namespace": NAMESPACE, "labels": {**labels, **LABELS}}
    port = {"name": "http", "port": 8080, "targetPort": "http"}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"selector": labels, "ports": [port]}},
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "ServiceMonitor",
            "metadata": metadata,
            "spec": {
                "selector": {"matchLabels": labels},
                "endpoints": [{"port": "http", "honorLabels": True}],
            },
        },
    ]
