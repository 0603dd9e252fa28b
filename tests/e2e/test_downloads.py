"""Weights from a hub to an answer, on nodes: the Job, its claim, the pods behind it."""

import json
from pathlib import Path

import pytest
import yaml
from openai import OpenAI

from demo.answer import address
from demo.objects import Manifest
from demo.service import EXAMPLE, NAMESPACE
from demo.weights import model_folder
from stubs import manifests
from stubs.deployed import Deployed, bring
from testbed import Cluster
from testbed.images import build as images
from testbed.reach import takes_connections
from tests.eventually import Eventually
from tests.places import Place

START = 240.0  # s for a download and the start behind it
REPOSITORY = "acme/smollm2"
TOKEN = "hf_right"
SECRET: Manifest = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "hub-token"},
    "stringData": {"HF_TOKEN": TOKEN, "hosts": f"http://hub.{NAMESPACE}.svc"},
}


@pytest.fixture
def hub(installed: Cluster, home: Place) -> Deployed:
    """A hub with the weights, for who has the token."""
    installed.load(images.build("stubs"))
    hub = bring(installed, manifests.hub(NAMESPACE, token=TOKEN))
    for path in sorted(Path(model_folder()).iterdir()):
        hub.control("PUT", f"/files/{REPOSITORY}/main/{path.name}", path.read_bytes())
    installed.kubectl("apply", "-n", NAMESPACE, "--server-side", "-f", "-", input=json.dumps(SECRET))
    return hub


def service(name: str, uri: str, cache: Manifest, **spec: bool) -> str:
    """The example, downloaded, with a start in seconds."""
    found = yaml.safe_load(EXAMPLE.read_text())
    found["metadata"]["name"] = name
    found["spec"]["model"] |= {"uri": uri, "cache": cache, "secretRef": {"name": "hub-token"}}
    found["spec"]["graph"] = {"sizes": {"prefill": [16], "decode": [1]}}
    endpoint = {"name": "HF_ENDPOINT", "value": f"http://hub.{NAMESPACE}.svc"}
    found["spec"] |= {"podTemplate": {"env": [endpoint]}, **spec}
    return yaml.safe_dump(found)


def test_two_services_share_a_download_and_a_wrong_name_is_named(
    installed: Cluster, home: Place, hub: Deployed, eventually: Eventually
) -> None:
    def apply(name: str, uri: str, cache: Manifest, **spec: bool) -> None:
        installed.kubectl("apply", "--server-side", "-f", "-", input=service(name, uri, cache, **spec))

    cache = {"size": "1Gi", "storageClassName": "testbed-shared", "accessMode": "ReadWriteMany"}
    apply("fetched", f"hf://{REPOSITORY}", cache)
    claim = eventually(lambda: home.status("fetched").get("model", {}).get("claim"), timeout=START)
    apply("fetched-too", f"hf://{REPOSITORY}", {"claim": claim}, suspend=True)
    apply("mistyped", "hf://acme/smollm3", {"claim": claim})
    try:
        commits = set()
        for name in ("fetched", "fetched-too"):
            commits.add(eventually(lambda name=name: home.status(name).get("model", {}).get("commit"), timeout=START))
        eventually(home.reached("Ready", "True", "Ready", "fetched"), timeout=START)
        assert said(installed, "fetched")
        (commit,) = commits
        assert len(commit) == 40
        (stored,) = (
            json.loads(text)
            for key, text in home.get("pvc", claim)["metadata"]["annotations"].items()
            if key.startswith("models.graphpod.dev/")
        )
        assert (stored["uri"], stored["commit"]) == (f"hf://{REPOSITORY}", commit)
        assert stored["bytes"] > Path(model_folder(), "model.safetensors").stat().st_size
        assert len(jobs(home)) == 2, "one for both services, one for the wrong name"
        message = eventually(home.reached("ModelAvailable", "False", "DownloadNotFound", "mistyped"), timeout=START)
        assert "hf://acme/smollm3" in message
        assert "kubectl" in message
    finally:
        for name in ("mistyped", "fetched-too", "fetched"):
            installed.kubectl("delete", "inferenceservice", name, "-n", NAMESPACE, "--wait", timeout=60)


def jobs(place: Place) -> set[str]:
    """Names of the downloads that there have been, by the events of their pods."""
    events = json.loads(place.kubectl("get", "events", "--field-selector", "involvedObject.kind=Job", "-o", "json"))
    names = {one["involvedObject"]["name"] for one in events["items"]}
    return {name for name in names if name.startswith("fetch-")}


def said(cluster: Cluster, name: str) -> str:
    """One sampled answer, as clients ask for it."""
    base = address(cluster, NAMESPACE, name)
    Eventually()(lambda: takes_connections(base))
    with OpenAI(base_url=f"{base}/v1", api_key="none", timeout=120, max_retries=0) as client:
        asked = [{"role": "user", "content": "Say hello."}]
        found = client.chat.completions.create(model=name, messages=asked, max_tokens=8)  # type: ignore[arg-type]
    return found.choices[0].message.content or ""
