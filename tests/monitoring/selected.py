"""Prometheus configured as the Prometheus operator does it: by the PodMonitors, ServiceMonitors and rules that
its selectors match, through that operator's own code. No scrape configuration is written by hand.
"""

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from monitoring.__main__ import ROOT
from stubs.kubeconfig import Kubeconfig
from testbed import Cluster
from testbed.binaries.golang import PROMETHEUS, binary
from tests.eventually import Eventually
from tests.monitoring.prometheus import Prometheus
from tests.ports import free_port

LABELS = {"release": "stack"}
"""By which our Prometheus selects, as one of kube-prometheus-stack does."""
NAMESPACE = "monitoring"
CUSTOM = ROOT / "charts/graphpod/files/kube-state-metrics.yaml"
KINDS = "podmonitors,servicemonitors,prometheusrules"


@dataclass(frozen=True)
class Selected:
    """What the Prometheus operator would configure: names as NAMESPACE/NAME."""

    pod_monitors: tuple[str, ...]
    service_monitors: tuple[str, ...]
    rules: tuple[str, ...]
    rejected: tuple[str, ...]


def prometheus_object(cluster: Cluster, folder: Path, seconds: int) -> dict[str, Any]:
    """A Prometheus outside the cluster that selects LABELS in every namespace, and scrapes at this interval."""
    context = Kubeconfig.load(cluster.kubeconfig)
    authority, token = folder / "authority.crt", folder / "token"
    authority.write_text(context.authority)
    token.touch(mode=0o600)
    token.write_text(context.raw["users"][0]["user"]["token"])
    every = f"{seconds}s"
    kinds = ("podMonitor", "serviceMonitor", "rule")
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "Prometheus",
        "metadata": {"name": "stack", "namespace": NAMESPACE},
        "spec": {
            "version": f"v{PROMETHEUS}",
            "scrapeInterval": every,
            "scrapeTimeout": every,
            "evaluationInterval": every,
            "replicaExternalLabelName": "",
            "serviceDiscoveryRole": "EndpointSlice",
            "apiserverConfig": {
                "host": context.server,
                "authorization": {"credentialsFile": str(token)},
                "tlsConfig": {"caFile": str(authority)},
            },
            **{f"{kind}Selector": {"matchLabels": LABELS} for kind in kinds},
            **{f"{kind}NamespaceSelector": {} for kind in kinds},
        },
    }


def configure(cluster: Cluster, folder: Path, seconds: int, alertmanager: str = "") -> Selected:
    """Write prometheus.yaml and rules/ into the folder from what the cluster has now."""
    found = json.loads(cluster.kubectl("get", KINDS, "--all-namespaces", "-o", "json"))["items"]
    namespaces = json.loads(cluster.kubectl("get", "namespaces", "-o", "json"))["items"]
    (folder / "rules").mkdir(parents=True, exist_ok=True)
    for old in (folder / "rules").iterdir():
        old.unlink()
    done = subprocess.run(
        [binary("prometheusconfig"), "-out", folder, "-alertmanager", alertmanager],
        input=json.dumps({"items": [prometheus_object(cluster, folder, seconds), *namespaces, *found]}),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    names = (report[key] for key in ("podMonitors", "serviceMonitors", "rules", "rejected"))
    return Selected(*(tuple(each) for each in names))


def plain(cluster: Cluster, folder: Path, documented: str, seconds: int) -> str:
    """A configuration of scrape jobs as a page documents it, for a Prometheus outside the cluster. Its credentials are
    those that `configure` wrote into the folder.
    """
    found, every = yaml.safe_load(documented), f"{seconds}s"
    api = {
        "api_server": Kubeconfig.load(cluster.kubeconfig).server,
        "authorization": {"credentials_file": str(folder / "token")},
        "tls_config": {"ca_file": str(folder / "authority.crt")},
    }
    for job in found["scrape_configs"]:
        for discovery in job["kubernetes_sd_configs"]:
            discovery |= api
    return yaml.safe_dump({"global": {"scrape_interval": every, "scrape_timeout": every}, **found})


@contextmanager
def process(log: Path, *words: str | Path, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs during the block, and ends by SIGTERM."""
    with log.open("ab") as output:
        started = subprocess.Popen(words, stdout=output, stderr=output, env={**os.environ, **(env or {})})
    try:
        yield started
    finally:
        started.terminate()
        started.wait(30)


@contextmanager
def prometheus(folder: Path) -> Iterator[Prometheus]:
    """Of the configuration in the folder; `reload` after another was written."""
    address, log = f"127.0.0.1:{free_port()}", folder / "prometheus.log"
    words = (f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'data'}")
    more = (f"--web.listen-address={address}", "--web.enable-lifecycle", "--log.level=warn")
    with process(log, binary("prometheus"), *words, *more, "--rules.alert.resend-delay=2s") as started:
        running = Prometheus(f"http://{address}")

        def ready() -> bool:
            assert started.poll() is None, log.read_text()
            try:
                return running.get("status/buildinfo")["version"] == PROMETHEUS
            except OSError:
                return False

        Eventually(logs=[log])(ready, timeout=60)
        yield running


def reload(running: Prometheus) -> None:
    """What the Prometheus operator's reloader does."""
    with urllib.request.urlopen(urllib.request.Request(f"{running.url}/-/reload", method="POST"), timeout=10) as reply:
        assert reply.status == 200


@contextmanager
def alertmanager(folder: Path) -> Iterator[str]:
    """An Alertmanager that keeps what it gets; its address."""
    address, log = f"127.0.0.1:{free_port()}", folder / "alertmanager.log"
    config = folder / "alertmanager.yaml"
    config.write_text(yaml.safe_dump({"route": {"receiver": "none"}, "receivers": [{"name": "none"}]}))
    words = (f"--config.file={config}", f"--storage.path={folder / 'alerts'}", f"--web.listen-address={address}")
    with process(log, binary("alertmanager"), *words, "--cluster.listen-address=") as started:

        def ready() -> bool:
            assert started.poll() is None, log.read_text()
            try:
                return alerts(address) == []
            except OSError:
                return False

        Eventually(logs=[log])(lambda: ready() or None, timeout=60)
        yield address


def alerts(address: str) -> list[dict[str, str]]:
    """The labels of the alerts that an Alertmanager holds as active."""
    return [found["labels"] for found in Prometheus(f"http://{address}").plain("api/v2/alerts?active=true")]


@contextmanager
def kube_state_metrics(cluster: Cluster, folder: Path, port: int) -> Iterator[None]:
    """kube-state-metrics of a cluster, on every address of this machine; of our kind as the documented file says."""
    log = folder / "kube-state-metrics.log"
    words = (f"--kubeconfig={cluster.kubeconfig}", f"--port={port}", f"--telemetry-port={free_port()}")
    kinds = f"--custom-resource-state-config-file={CUSTOM}"
    hosts = ("--host=0.0.0.0", "--telemetry-host=127.0.0.1")
    with process(log, binary("kube-state-metrics"), *words, *hosts, "--resources=pods,deployments", kinds) as started:

        def ready() -> bool:
            assert started.poll() is None, log.read_text()
            try:
                return "kube_pod_info{" in Prometheus(f"http://127.0.0.1:{port}").text("metrics")
            except OSError:
                return False

        Eventually(logs=[log])(ready, timeout=60)
        yield
