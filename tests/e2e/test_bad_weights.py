"""Services that cannot come up, or not with all graphs: each ends in a condition with its reason and the next step."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import yaml
from openai import OpenAI
from prometheus_client.parser import text_string_to_metric_families

from demo.answer import address
from demo.counters import exposition
from demo.objects import Manifest, conditions, read
from demo.service import CLAIM, EXAMPLE, HERE, NAMESPACE
from demo.weights import MODEL
from graphpod_policy import ExitCode
from testbed import Cluster
from testbed.reach import takes_connections
from tests.eventually import Eventually
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

FAULT = {"env": [{"name": "GRAPHPOD_FAULT", "value": "capture:decode:2,capture:decode:8"}]}
"""In the graph of two requests, which has eight rows with drafts."""
DRAFTS_AND_TIER: Manifest = {
    "maxModelLen": 256,
    "maxBatch": 2,
    "kvCacheMemory": "16Mi",
    "hostCache": {"size": "64Mi"},
    "speculative": {"method": "Ngram", "maxBatch": 2},
}
"""Of a KV cache of 364 tokens."""
PROMPTS = ("red green blue", "cat dog bird", "sun moon star")
"""A token a word; with any graphs each is repeated."""


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
        pytest.param(
            *("no-weights", f"pvc://{CLAIM}/empty", "ModelInvalid"),
            ["/empty: no *.safetensors", "copy the whole folder"],
            marks=pytest.mark.slow,
        ),
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


def test_a_failed_capture_degrades_beside_drafts_and_a_host_cache_and_says_so_in_status_and_metrics(
    installed: Cluster, service: Callable[..., str], eventually
) -> None:
    """Speculative decoding and the host tier of the KV cache go on as without the fault."""
    place, name = Place(installed, NAMESPACE), service("weaker", engine=DRAFTS_AND_TIER, podTemplate=FAULT)
    eventually(place.reached("Ready", "True", "Degraded", name), timeout=START)
    found = eventually(reached(installed, name, "GraphsCaptured", "True", "Degraded"), timeout=30)
    assert conditions(found)["WorkloadAvailable"]["status"] == "True"
    decode, engine = found["status"]["graph"]["decode"], found["status"]["engine"]
    assert (decode["planned"], decode["effective"]) == ("Full", "Disabled")
    assert "CaptureFailed" in {decision["rule"] for decision in found["status"]["graph"]["decisions"]}
    assert (engine["speculative"]["method"], engine["hostCacheTokens"] > engine["kvTokens"]) == ("Ngram", True)
    assert answers(place, name) == [f" {words}" * 4 for words in (*PROMPTS, PROMPTS[0])]
    failures = measured(place, name)("graphpod_graph_capture_failures_total", phase="decode", reason="CaptureFailed")
    assert failures > 0


def answers(place: Place, name: str) -> list[str]:
    """What one pod says to three prompts, of which the KV cache holds one, and to the first again. Drafts were right,
    and the first prompt came back from the host."""
    eventually, base = Eventually(), address(place.cluster, NAMESPACE, name)
    eventually(lambda: takes_connections(base))
    with OpenAI(base_url=f"{base}/v1", api_key="none", timeout=120, max_retries=0) as client:

        def said(words: str) -> str:
            prompt = f"Repeat: {' '.join([words] * 60)}"
            return client.completions.create(model=name, prompt=prompt, max_tokens=12, temperature=0).choices[0].text

        texts = [said(words) for words in (*PROMPTS, PROMPTS[0])]
    assert texts[0] == texts[-1]
    series = partial(eventually, timeout=15)
    value = measured(place, name)
    series(lambda: value("graphpod_speculation_accepted_tokens_total", method="Ngram") > 12)
    for direction in ("store", "load"):
        series(lambda way=direction: value("graphpod_host_cache_copied_bytes_total", direction=way) > 1 << 20)
    assert value("graphpod_prefix_cache_tier_hit_tokens_total", tier="host") >= 64
    assert value("graphpod_host_cache_failures_total") == 0
    return texts


def measured(place: Place, name: str) -> Callable[..., float]:
    """The value of a series of the only pod."""

    def value(metric: str, **labels: str) -> float:
        (pod,) = place.pods(name)
        families = text_string_to_metric_families(exposition(place.cluster, pod["metadata"]["name"]))
        samples = [sample for family in families for sample in family.samples if sample.name == metric]
        return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())

    return value


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
