"""Services that cannot come up: each ends in a condition with its reason and the next step."""

from collections.abc import Callable, Iterator

import pytest
import yaml

from demo.objects import Manifest, conditions, read
from demo.service import CLAIM, EXAMPLE, HERE, NAMESPACE
from demo.weights import MODEL
from graphpod_policy import ExitCode
from testbed import Cluster
from tests.places import Place

START = 240.0  # s for one engine to start or to fail

BROKEN = f"""
set -eu
cd /target
for folder in empty corrupt; do
  mkdir -p $folder
  cp {MODEL}/*.json $folder/
done
head -c 1000000 {MODEL}/model.safetensors > corrupt/model.safetensors
"""

FAULT = {"env": [{"name": "GRAPHPOD_FAULT", "value": "capture:decode:2"}]}


@pytest.fixture(scope="module")
def broken(installed: Cluster) -> None:
    """Beside the good folder two broken ones: `empty` and `corrupt`."""
    job = yaml.safe_load((HERE / "weights-job.yaml").read_text())
    job["metadata"]["name"] = "broken-weights"
    job["spec"]["template"]["spec"]["containers"][0]["command"] = ["/bin/sh", "-c", BROKEN]
    installed.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump(job))
    installed.kubectl(
        "wait", "--for=condition=Complete", "job/broken-weights", "-n", NAMESPACE, "--timeout=120s", timeout=130
    )


@pytest.fixture
def service(installed: Cluster, broken: None, home: Place) -> Iterator[Callable[..., str]]:
    """Applies the example changed in some fields of its spec, under a name of its own; deleted afterwards."""
    names: list[str] = []

    def make(name: str, **changes: Manifest) -> str:
        found = yaml.safe_load(EXAMPLE.read_text())
        found["metadata"]["name"] = name
        found["spec"]["graph"] = {"sizes": {"prefill": [16], "decode": [1, 2]}}  # a start in seconds
        for part, fields in changes.items():
            found["spec"][part] = found["spec"].get(part, {}) | fields
        installed.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump(found))
        names.append(name)
        return name

    yield make
    for name in names:
        installed.kubectl("delete", "inferenceservice", name, "-n", NAMESPACE, "--wait", timeout=60)


def reached(cluster: Cluster, name: str, condition: str, status: str, reason: str) -> Callable[[], Manifest]:
    """A check for `eventually`: the service, once its condition has that status and reason."""

    def check() -> Manifest:
        found = Place(cluster, NAMESPACE).get("gisvc", name)
        one = conditions(found).get(condition, {})
        assert (one.get("status"), one.get("reason")) == (status, reason), f"{condition} is {one}"
        return found

    return check


@pytest.mark.parametrize(
    ("name", "uri", "reason", "words"),
    [
        ("no-claim", f"pvc://nowhere/{MODEL}", "ClaimNotFound", ["nowhere", "create the PersistentVolumeClaim"]),
        ("no-folder", f"pvc://{CLAIM}/elsewhere", "ModelInvalid", ["/elsewhere is not a folder"]),
        ("no-weights", f"pvc://{CLAIM}/empty", "ModelInvalid", ["/empty: no *.safetensors", "copy the whole folder"]),
        ("torn-weights", f"pvc://{CLAIM}/corrupt", "ModelInvalid", ["/corrupt/model.safetensors", "copy it again"]),
    ],
)
def test_a_model_that_is_not_there_is_named_with_the_next_step(
    installed: Cluster, service: Callable[..., str], eventually, name: str, uri: str, reason: str, words: list[str]
) -> None:
    service(name, model={"uri": uri})
    found = eventually(reached(installed, name, "ModelAvailable", "False", reason), timeout=START)
    message = conditions(found)["ModelAvailable"]["message"]
    assert "/model/" not in message
    for word in words:
        assert word in message, message
    found = eventually(reached(installed, name, "Ready", "False", reason), timeout=10)
    assert conditions(found)["Stalled"]["status"] == "True"


def test_a_failed_capture_degrades_and_says_so_in_status_and_metrics(
    installed: Cluster, service: Callable[..., str], eventually
) -> None:
    name = service("weaker", podTemplate=FAULT)
    found = eventually(reached(installed, name, "GraphsCaptured", "True", "Degraded"), timeout=START)
    found = eventually(reached(installed, name, "WorkloadAvailable", "True", "Available"), timeout=30)
    decode = found["status"]["graph"]["decode"]
    assert decode["planned"] == "Full"
    assert decode["effective"] != "Full"
    assert "CaptureFailed" in {decision["rule"] for decision in found["status"]["graph"]["decisions"]}
    (pod,) = installed.kubectl(
        "get", "pods", "-n", NAMESPACE, "-l", f"graphpod.dev/inferenceservice={name}", "-o", "name"
    ).split()
    text = installed.kubectl(
        "get", "--raw", f"/api/v1/namespaces/{NAMESPACE}/{pod.replace('pod/', 'pods/')}:8001/proxy/metrics"
    )
    failed = [line for line in text.splitlines() if line.startswith("graphpod_graph_capture_failures_total{")]
    assert any(
        'phase="decode"' in line and 'reason="CaptureFailed"' in line and not line.endswith(" 0.0") for line in failed
    )


def test_a_failed_capture_stops_a_service_that_asked_for_that(
    installed: Cluster, service: Callable[..., str], eventually
) -> None:
    name = service("strict", podTemplate=FAULT, graph={"onCaptureFailure": "Fail"})
    found = eventually(reached(installed, name, "GraphsCaptured", "False", "CaptureFailed"), timeout=START)
    assert "onCaptureFailure" in conditions(found)["GraphsCaptured"]["message"]
    assert conditions(found)["Stalled"]["status"] == "True"

    def exit_code() -> int | None:
        """The engine's report may be read before its container has ended; the code comes with the end."""
        return read(installed, "inferenceservice", name, NAMESPACE)["status"]["lastFailure"].get("exitCode")

    assert eventually(exit_code, timeout=30) == ExitCode.CaptureFailed
