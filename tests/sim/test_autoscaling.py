"""Autoscalers of Kubernetes' own that follow the pods' load: ours on the Deployment, a user's on the service."""

import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from testbed import Cluster
from testbed.host import record
from testbed.host.network import Addresses
from tests.aggregation import JsonHandler, served_at
from tests.sim.conftest import SimPlace

GROUP, VERSION = "custom.metrics.k8s.io", "v1beta2"
ROOT = f"/apis/{GROUP}/{VERSION}"
WAITING = "graphpod_requests_waiting"


class Adapter(ThreadingHTTPServer):
    """What prometheus-adapter is elsewhere: every pod of a namespace has `load` requests waiting."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.load = cluster, 0
        adapter = self

        class Handler(JsonHandler):
            def do_GET(self) -> None:
                self.answer(adapter.answer(self.path.partition("?")[0]))

        host = Addresses(record.load(cluster.name).id).host
        super().__init__((host, 0), Handler)

    def answer(self, path: str) -> dict[str, Any]:
        if path == ROOT:
            metric = {"name": f"pods/{WAITING}", "singularName": "", "namespaced": True, "kind": "MetricValueList"}
            kind = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}"}
            return {**kind, "resources": [{**metric, "verbs": ["get"]}]}
        namespace = path.removeprefix(f"{ROOT}/namespaces/").partition("/")[0]
        pods = json.loads(self.cluster.kubectl("-n", namespace, "get", "pods", "-o", "json"))["items"]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        items = [
            {
                "describedObject": {"kind": "Pod", "namespace": namespace, "name": pod["metadata"]["name"]},
                "metric": {"name": WAITING},
                "timestamp": now,
                "value": str(self.load),
            }
            for pod in pods
        ]
        return {"kind": "MetricValueList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": items}


@pytest.fixture
def adapter(sim: Cluster, tmp_path: Path, eventually) -> Iterator[Adapter]:
    pair = tmp_path / "key.pem", tmp_path / "certificate.pem"
    new = "openssl req -x509 -nodes -days 1 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -subj /CN=adapter"
    subprocess.run([*new.split(), "-keyout", pair[0], "-out", pair[1]], check=True, capture_output=True, timeout=30)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair[1], pair[0])
    with Adapter(sim) as serving:
        host, port = serving.server_address[:2]
        serving.socket = context.wrap_socket(serving.socket, server_side=True)
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        listed = json.dumps(served_at(str(host), port, name="adapter", group=GROUP, version=VERSION))
        sim.kubectl("apply", "-f", "-", input=listed)
        try:
            state = "jsonpath={.status.conditions[?(@.type=='Available')].status}"
            eventually(lambda: sim.kubectl("get", "apiservice", f"{VERSION}.{GROUP}", "-o", state) == "True")
            yield serving
        finally:  # a group whose server is gone makes every discovery of the cluster fail
            sim.kubectl("delete", "--ignore-not-found", "-f", "-", input=listed)
            serving.shutdown()


def test_contract_6_the_pods_of_an_autoscaled_service_follow_its_waiting_requests(
    place: SimPlace, adapter: Adapter, eventually
) -> None:
    adapter.load = 4
    place.bring_up(replicas=2, autoscaling={"min": 1, "max": 3, "metric": "WaitingRequests", "target": 4})
    eventually(place.reached("ScalingReady", "True", "Autoscaled"), timeout=60)
    adapter.load = 12
    eventually(lambda: len(place.pods()) == 3, timeout=60)
    # the status of the two may still stand when the third is there
    eventually(lambda: place.condition("WorkloadAvailable")[2].startswith("3 of 3 pods serve"), timeout=60)
    eventually(place.reached("Ready", "True", "Ready"), timeout=60)


def test_an_autoscaler_on_the_service_itself_finds_its_pods_and_changes_its_replicas(
    place: SimPlace, adapter: Adapter, eventually
) -> None:
    place.bring_up()
    eventually(place.reached("Ready", "True", "Ready"))
    adapter.load = 12
    average = {"type": "AverageValue", "averageValue": "4"}
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "mine"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "graphpod.dev/v1alpha1", "kind": "InferenceService", "name": "demo"},
            "maxReplicas": 2,
            "metrics": [{"type": "Pods", "pods": {"metric": {"name": WAITING}, "target": average}}],
        },
    }
    place.kubectl("apply", "-f", "-", input=json.dumps(autoscaler))
    eventually(lambda: place.get("gisvc", "demo")["spec"]["replicas"] == 2, timeout=90)
    eventually(lambda: len(place.pods()) == 2)
    eventually(place.reached("Ready", "True", "Ready"), timeout=60)
