"""Hub, object storage and external metrics as pods: asked by their real clients, from the host and from inside."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from huggingface_hub import snapshot_download
from obstore.store import S3Store

from stubs import certificate, manifests
from stubs.deployed import Deployed, bring
from stubs.external_metrics import ROOT
from testbed.nodes.pause import IMAGE as PAUSE
from tests.eventually import Eventually
from tests.places import Place

WEIGHTS = os.urandom(1_000_000)
ASK = "import sys, urllib.request; print(len(urllib.request.urlopen(sys.argv[1], timeout=20).read()))"


def asked_from_inside(place: Place, url: str) -> int:
    """Bytes that a pod of the place got from an address."""
    pod = manifests.hub(place.namespace)[0]["spec"]["template"]["spec"]
    container = {**pod["containers"][0], "name": "asker", "command": ["python3", "-c", ASK], "args": [url]}
    del container["readinessProbe"]
    spec = {**pod, "restartPolicy": "Never", "containers": [container]}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asker"}, "spec": spec}
    place.kubectl("create", "-f", "-", input=json.dumps(manifest))
    place.kubectl("wait", "pod/asker", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s", timeout=70)
    return int(place.kubectl("logs", "asker"))


def test_the_hub_serves_its_client_through_a_fault(stub_place: Place, tmp_path: Path) -> None:
    hub = bring(stub_place.cluster, manifests.hub(stub_place.namespace, token="hf_right"))
    hub.control("PUT", "/files/org/tiny/main/model.safetensors", WEIGHTS)
    hub.control("PUT", "/files/org/tiny/main/config.json", b"{}")
    armed = hub.control("POST", "/faults", {"effect": "Cut", "after_bytes": 1000, "path": "/cdn/", "times": 1})
    folder = snapshot_download("org/tiny", endpoint=hub.url, token="hf_right", cache_dir=tmp_path)
    assert (Path(folder) / "model.safetensors").read_bytes() == WEIGHTS
    [row] = hub.control("GET", "/faults")
    assert (row["number"], row["hits"]) == (armed["number"], 1)


def test_the_storage_serves_the_host_and_pods(stub_place: Place) -> None:
    storage = bring(stub_place.cluster, manifests.s3(stub_place.namespace))
    storage.control("PUT", "/files/models/tiny/model.safetensors", WEIGHTS)
    store = S3Store(
        "models", endpoint=storage.url, region="us-east-1", skip_signature=True, client_options={"allow_http": True}
    )
    assert bytes(obstore.get(store, "tiny/model.safetensors").bytes()) == WEIGHTS
    name = f"http://s3.{stub_place.namespace}.svc/models/tiny/model.safetensors"
    assert asked_from_inside(stub_place, name) == len(WEIGHTS)


@pytest.fixture
def metrics(stub_place: Place) -> Iterator[Deployed]:
    pair = certificate.make([f"DNS:external-metrics.{stub_place.namespace}.svc"])
    objects = manifests.external_metrics(stub_place.namespace, pair)
    try:
        yield bring(stub_place.cluster, objects)
    finally:  # a group whose server is gone makes every discovery of the cluster fail
        stub_place.cluster.kubectl("delete", "apiservice", objects[-1]["metadata"]["name"])


def test_an_autoscaler_follows_the_value_that_a_test_sets(
    stub_place: Place, metrics: Deployed, eventually: Eventually
) -> None:
    place = stub_place

    def told() -> Any:
        said = place.kubectl("get", "--raw", f"{ROOT}/namespaces/{place.namespace}/waiting")
        return json.loads(said)["items"][0]["value"]

    def replicas(wanted: int) -> bool:
        return place.get("deployment", "scaled")["status"].get("readyReplicas", 0) == wanted

    metrics.control("PUT", f"/metrics/{place.namespace}/waiting", 30)
    assert eventually(told) == "30", "through the API server, on its word"
    place.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(scaled()))
    eventually(lambda: replicas(3), timeout=60)
    metrics.control("PUT", f"/metrics/{place.namespace}/waiting", "1")
    eventually(lambda: replicas(1), timeout=60)


def scaled() -> dict[str, Any]:
    """A Deployment and an autoscaler that wants one pod for each ten that wait."""
    safe = manifests.hub("x")[0]["spec"]["template"]["spec"]
    container = {"name": "pause", "image": PAUSE, "securityContext": safe["containers"][0]["securityContext"]}
    pod = {"securityContext": safe["securityContext"], "containers": [container], "terminationGracePeriodSeconds": 1}
    labels = {"app": "scaled"}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "scaled"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }
    external = {"metric": {"name": "waiting"}, "target": {"type": "AverageValue", "averageValue": "10"}}
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "scaled"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "scaled"},
            "maxReplicas": 5,
            "metrics": [{"type": "External", "external": external}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        },
    }
    return {"apiVersion": "v1", "kind": "List", "items": [deployment, autoscaler]}
