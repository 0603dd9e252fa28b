"""`make sources`: each kind of source to an answer on nodes, one download for services and replicas, killed Jobs.

The hub is our stub, the storage our own stub of S3, which checks signatures, and the registry is crane's. gs:// and
az:// are tested at the HTTP boundary (tests/unit/sources/test_objects.py): there is no server of theirs to run.
"""

from __future__ import annotations

import json
import os
import signal
import tarfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo.objects import Manifest
from demo.service import EXAMPLE, NAMESPACE
from demo.weights import model_folder
from stubs import manifests
from stubs.deployed import Deployed, bring
from testbed import Cluster
from testbed.binaries import golang
from testbed.command import run
from testbed.images import build as images
from testbed.images.packed import architecture
from testbed.nodes.pause import docker_archive
from tests.e2e.test_downloads import said
from tests.eventually import Eventually
from tests.places import Place

pytestmark = pytest.mark.slow
RESULTS = "GRAPHPOD_SOURCES"
"""The variable that names the file of results."""

START = 400.0  # s for a download and the start behind it
TOKEN, KEY = "hf_right", ("AKIDEXAMPLE", "wJalrXUtnFEMI")
HUB, S3, REGISTRY = f"http://hub.{NAMESPACE}.svc", f"http://s3.{NAMESPACE}.svc", f"registry.{NAMESPACE}.svc:5000"
REGISTRY_IMAGE = "graphpod.dev/crane:test"
CACHE = {"size": "2Gi", "storageClassName": "testbed-shared", "accessMode": "ReadWriteMany"}
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "sources"},
    "stringData": {
        "HF_TOKEN": TOKEN,
        "AWS_ACCESS_KEY_ID": KEY[0],
        "AWS_SECRET_ACCESS_KEY": KEY[1],
        "hosts": f"{HUB}, {S3}",
    },
}
ENV = {"HF_ENDPOINT": HUB, "AWS_ENDPOINT_URL": S3, "OCI_PLAIN_HTTP": REGISTRY}
RATE = 512 << 10  # bytes a second of a slow hub and a connection, of which there are eight: 270 MB take a minute
STEP = 12 << 20  # bytes that a pod downloads before it is killed
KILLS = ("SIGKILL", "pod deleted", "Job deleted")
MOMENTS = 10  # at each the next of these; a new Job begins with a short back-off again


def keep(name: str, row: Any) -> None:
    """Write down one row of the results, where `make sources` says."""
    if place := os.environ.get(RESULTS):
        file = Path(place)
        known = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps({**known, name: row}, indent=2, sort_keys=True) + "\n")


@pytest.fixture(scope="module")
def hub(installed: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Deployed:
    """Hub, storage and registry with the weights; the hub's control port takes faults."""
    folder, weights = tmp_path_factory.mktemp("sources"), sorted(Path(model_folder()).iterdir())
    installed.load(images.build("stubs"))
    hub = bring(installed, manifests.hub(NAMESPACE, token=TOKEN))
    storage = bring(installed, manifests.s3(NAMESPACE, key=":".join(KEY)))
    for path in weights:
        hub.control("PUT", f"/files/acme/smollm2/main/{path.name}", path.read_bytes())
        storage.control("PUT", f"/files/models/team/smollm2/{path.name}", path.read_bytes())
    _registry(installed, folder)
    _push(installed, folder, weights)
    installed.kubectl("apply", "-n", NAMESPACE, "--server-side", "-f", "-", input=json.dumps(SECRET))
    return hub


def _registry(cluster: Cluster, folder: Path) -> None:
    [program] = golang.build(["crane"]).values()
    archive = folder / "crane.tar"
    archive.write_bytes(docker_archive(program.read_bytes(), architecture(), REGISTRY_IMAGE))
    cluster.load(archive)
    labels = {"app": "registry"}
    safe = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}
    container = {
        "name": "registry",
        "image": REGISTRY_IMAGE,
        "args": ["registry", "serve", "--address=:5000", "--disk=/data"],
        "ports": [{"containerPort": 5000}],
        "readinessProbe": {"tcpSocket": {"port": 5000}, "periodSeconds": 1},
        "securityContext": safe,
        "env": [{"name": "TMPDIR", "value": "/data"}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    pod = {
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    metadata = {"name": "registry", "namespace": NAMESPACE}
    template = {"metadata": {"labels": labels}, "spec": pod}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"selector": labels, "ports": [{"port": 5000}]},
    }
    for one in (deployment, service):
        cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(one))
    cluster.kubectl("-n", NAMESPACE, "rollout", "status", "deployment/registry", "--timeout=60s", timeout=70)


def _push(cluster: Cluster, folder: Path, weights: list[Path]) -> None:
    """The weights as an image of one layer, by crane itself."""
    layer = folder / "weights.tar"
    with tarfile.open(layer, "w") as tar:
        for path in weights:
            tar.add(path, f"models/smollm2/{path.name}")
    spec = json.loads(cluster.kubectl("-n", NAMESPACE, "get", "service", "registry", "-o", "json"))["spec"]
    to = f"{spec['clusterIP']}:5000/acme/smollm2:v1"
    run([golang.binary("crane"), "append", "--insecure", "-f", str(layer), "-t", to], timeout=120)


def service(name: str, uri: str, cache: Manifest | None, **spec: Any) -> str:
    """The example, downloaded, or streamed where there is no cache, with a start in seconds."""
    found = yaml.safe_load(EXAMPLE.read_text())
    found["metadata"]["name"] = name
    found["spec"]["model"] |= {"uri": uri, **({"stream": True} if cache is None else {"cache": cache})}
    if not uri.startswith("oci:"):
        found["spec"]["model"]["secretRef"] = {"name": "sources"}
    found["spec"]["resources"]["requests"]["cpu"] = "150m"  # four pods fit on two small nodes
    found["spec"]["graph"] = {"sizes": {"prefill": [16], "decode": [1]}}
    found["spec"]["podTemplate"] = {"env": [{"name": key, "value": value} for key, value in ENV.items()]}
    return yaml.safe_dump({**found, "spec": {**found["spec"], **spec}})


Apply = Callable[..., None]


@pytest.fixture
def apply(installed: Cluster, home: Place, hub: Deployed) -> Iterator[Apply]:
    """Applies services, and takes them and their claims away at the end."""
    names: list[str] = []

    def made(name: str, uri: str, cache: Manifest | None, **spec: Any) -> None:
        names.append(name)
        installed.kubectl("apply", "--server-side", "-f", "-", input=service(name, uri, cache, **spec))

    yield made
    for name in names:
        installed.kubectl("delete", "inferenceservice", name, "-n", NAMESPACE, "--wait", timeout=120)
    for name in names:
        installed.kubectl("delete", "pvc", f"{name}-weights", "-n", NAMESPACE, "--ignore-not-found", timeout=120)


def jobs(home: Place) -> set[str]:
    """The uids of the downloads that there have been, by the events of their pods."""
    found = (one["involvedObject"] for one in home.all("event"))
    return {one["uid"] for one in found if one["kind"] == "Job" and one["name"].startswith("fetch-")}


def test_a_download_that_is_killed_goes_on(
    installed: Cluster, home: Place, eventually: Eventually, apply: Apply, hub: Deployed
) -> None:
    """SIGKILL of the program, and pods and Jobs that are deleted: each pod begins with what the one before it had on
    disk.
    """
    slow = hub.control("POST", "/faults", {"effect": "Slow", "bytes_per_second": RATE, "path": "/cdn/"})
    try:
        apply("killed", "hf://acme/smollm2@main", CACHE, suspend=True)
        seen: list[dict[str, Any]] = []
        for _, how in zip(range(MOMENTS), cycle(KILLS), strict=False):
            pod = eventually(lambda: _running(home, {one["pod"] for one in seen}), timeout=START)
            begins = eventually(partial(_progress, installed, pod, 1), timeout=START)
            at = eventually(partial(_progress, installed, pod, begins + STEP), timeout=START)
            name = pod["metadata"]["name"]
            if how == "SIGKILL":
                os.kill(_process(pod), signal.SIGKILL)
            elif how == "pod deleted":
                home.kubectl("delete", "pod", name, "--grace-period=0", "--force", timeout=60)
            else:
                home.kubectl("delete", "job", pod["metadata"]["labels"]["job-name"], timeout=60)
            seen.append({"pod": name, "begins": begins, "bytes": at, "how": how})
    finally:
        hub.control("DELETE", "/faults")
    assert slow
    eventually(lambda: _stored(home, "killed-weights"), timeout=START)
    keep("killed", [{key: one[key] for key in ("how", "begins", "bytes")} for one in seen])
    for before, after in pairwise(seen):
        assert after["begins"] >= before["bytes"] - STEP, "it goes on with what was on disk"


@pytest.mark.parametrize(
    ("kind", "uri", "commit"),
    [
        ("s3", "s3://models/team/smollm2", 71),
        ("oci", f"oci://{REGISTRY}/acme/smollm2:v1", 71),
        ("hf", "hf://acme/smollm2", 40),
    ],
)
def test_each_source_comes_to_an_answer(
    installed: Cluster,
    home: Place,
    eventually: Eventually,
    apply: Apply,
    kind: str,
    uri: str,
    commit: int,
) -> None:
    began = time.monotonic()
    apply(f"from-{kind}", uri, CACHE)
    eventually(home.reached("Ready", "True", "Ready", f"from-{kind}"), timeout=START)
    model = home.status(f"from-{kind}")["model"]
    assert len(model["commit"]) == commit
    assert said(installed, f"from-{kind}")
    keep(kind, {"uri": uri, "commit": model["commit"], "seconds": round(time.monotonic() - began)})


@pytest.mark.parametrize(("kind", "uri"), [("s3", "s3://models/team/smollm2"), ("hf", "hf://acme/smollm2")])
def test_streamed_weights_come_to_an_answer_without_a_claim(
    installed: Cluster, home: Place, eventually: Eventually, apply: Apply, kind: str, uri: str
) -> None:
    """Into the engine, at the start of a pod and of the one after it; no Job, no claim, no weights on disk."""
    name = f"streams-{kind}"
    before, began = set(home.names("jobs", "graphpod.dev/weights")), time.monotonic()
    apply(name, uri, None)
    eventually(home.reached("Ready", "True", "Ready", name), timeout=START)
    seconds = round(time.monotonic() - began)
    assert said(installed, name)
    (pod,) = _pods(home, name)
    assert not any("persistentVolumeClaim" in one for one in pod["spec"]["volumes"])
    assert set(home.names("jobs", "graphpod.dev/weights")) <= before
    on_disk = home.kubectl("exec", pod["metadata"]["name"], "--", "python3", "-c", LIST)
    assert "config.json" in on_disk
    assert "safetensors" not in on_disk
    rates = [line for line in home.kubectl("logs", pod["metadata"]["name"]).splitlines() if "GB/s" in line]
    assert len(rates) == 1
    home.kubectl("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force", timeout=60)

    def replaced() -> bool:
        return any(one["metadata"]["uid"] != pod["metadata"]["uid"] and _ready(one) for one in _pods(home, name))

    eventually(replaced, timeout=START)
    assert said(installed, name)
    keep(f"streamed-{kind}", {"uri": uri, "seconds": seconds, "rate": rates[0].partition("weights: ")[2]})


def test_a_stream_from_nowhere_says_so(home: Place, eventually: Eventually, apply: Apply) -> None:
    apply("nowhere", "s3://models/team/none", None)
    message = eventually(home.reached("ModelAvailable", "False", "SourceFailed", "nowhere"), timeout=START)
    assert "NotFound: s3://models/team/none: no object is below this prefix" in message


LIST = "import os; print(*(name for _, _, names in os.walk('/model') for name in names))"


def _pods(home: Place, name: str) -> list[Manifest]:
    return [one for one in home.all("pod", f"app.kubernetes.io/instance={name}") if _is_there(one)]


def _is_there(pod: Manifest) -> bool:
    return "deletionTimestamp" not in pod["metadata"]


def _ready(pod: Manifest) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def test_two_services_with_four_replicas_are_one_download(
    home: Place, eventually: Eventually, apply: Apply, hub: Deployed
) -> None:
    size = Path(model_folder(), "model.safetensors").stat().st_size
    before = jobs(home)
    apply("first", "hf://acme/smollm2@main", CACHE, suspend=True)
    eventually(lambda: jobs(home) - before)
    apply("second", "hf://acme/smollm2@main", {"claim": "first-weights"}, replicas=2)
    home.merge("gisvc", "first", {"spec": {"suspend": False, "replicas": 2}})
    for name in ("first", "second"):
        eventually(home.reached("Ready", "True", "Ready", name), timeout=START)
    ready = [
        pod
        for pod in home.all("pod")
        if pod["metadata"]["labels"].get("app.kubernetes.io/instance") in ("first", "second")
    ]
    assert len(ready) == 4
    annotations = home.get("pvc", "first-weights")["metadata"]["annotations"]
    stored = [json.loads(text) for key, text in annotations.items() if key.startswith("models.graphpod.dev/")]
    assert [one["uri"] for one in stored] == ["hf://acme/smollm2@main"]
    assert stored[0]["bytes"] > size
    downloads = len(jobs(home) - before)
    keep("shared", {"services": 2, "pods": len(ready), "downloads": downloads})
    assert downloads == 1


def _running(home: Place, before: set[str]) -> Manifest | None:
    for pod in home.all("pod", "app.kubernetes.io/name=graphpod-fetch"):
        states = pod["status"].get("containerStatuses") or ()
        if pod["metadata"]["name"] not in before and any("running" in one["state"] for one in states):
            return pod
    return None


def _progress(cluster: Cluster, pod: Manifest, least: int) -> int | None:
    """Bytes that a download has, once they are so many."""
    name, where = pod["metadata"]["name"], f"/api/v1/namespaces/{NAMESPACE}/pods"
    report = json.loads(cluster.kubectl("get", "--raw", f"{where}/{name}:8001/proxy/progress"))
    count: int = report["bytes"]
    return count if report["phase"] == "Downloading" and count >= least else None


def _process(pod: Manifest) -> int:
    """The process of the download, by the cgroup that the kubelet made for its pod."""
    name = f"/pod{pod['metadata']['uid']}/"
    for groups in Path("/proc").glob("[0-9]*/cgroup"):
        try:
            if name in groups.read_text() and b"graphpod-fetch" in groups.with_name("cmdline").read_bytes():
                return int(groups.parent.name)
        except OSError:
            continue  # it ended meanwhile
    raise AssertionError(f"no process of pod {pod['metadata']['name']}")


def _stored(home: Place, claim: str) -> list[str]:
    annotations = home.get("pvc", claim)["metadata"].get("annotations") or {}
    return [key for key in annotations if key.startswith("models.graphpod.dev/")]
