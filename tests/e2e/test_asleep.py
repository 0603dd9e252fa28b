"""A service on a real node that sleeps by its annotation and gives its memory back, wakes with the same answer, and
takes new weights in place, which answer otherwise; the pod and its container stay the same all the time.

The tests of this file are one story in its order.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from demo.answer import address
from demo.service import CLAIM, EXAMPLE, NAMESPACE
from graphpod_operator.api.names import RELOAD_ANNOTATION, SLEEP_ANNOTATION
from testbed import Cluster
from testbed.reach import takes_connections
from tests.eventually import Eventually
from tests.places import Place

pytestmark = pytest.mark.slow

NAME = "sleepy"
START = 420.0  # s, next to other engines on two cores
CHANGE = 120.0  # s: 540 MB are read from disk, and graphs are compared
EMBEDDING = "model.embed_tokens.weight"


@pytest.fixture(scope="module")
def sleepy(installed: Cluster) -> Iterator[Place]:
    place = Place(installed, NAMESPACE)
    spec: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())["spec"]
    spec["graph"] |= {"sizes": {"prefill": [48], "decode": [1]}}
    spec["resources"]["requests"]["cpu"] = "500m"
    spec["engine"] = {**spec.get("engine", {}), "sleep": True, "reload": True}
    place.apply(NAME, **spec)
    yield place
    place.kubectl("delete", "gisvc", NAME, "--ignore-not-found", "--wait", timeout=60)


@pytest.fixture
def weights(sleepy: Place) -> Iterator[Path]:
    """The file of the weights, as the node sees it; it is as before after the test."""
    volume = sleepy.get("pvc", CLAIM)["spec"]["volumeName"]
    claim = json.loads(sleepy.cluster.kubectl("get", "pv", volume, "-o", "json"))
    uri = yaml.safe_load(EXAMPLE.read_text())["spec"]["model"]["uri"]
    (file,) = (Path(claim["spec"]["local"]["path"]) / uri.rpartition("/")[2]).glob("*.safetensors")
    kept = file.with_suffix(".kept")
    shutil.copy2(file, kept)
    yield file
    kept.replace(file)


def pod(place: Place) -> dict[str, Any]:
    (found,) = place.pods(NAME)
    return dict(found)


def runs(place: Place) -> tuple[str, str, int]:
    """What would be another after a restart of anything."""
    found = pod(place)
    (container,) = found["status"]["containerStatuses"]
    return found["metadata"]["uid"], container["containerID"], container["restartCount"]


def memory(place: Place) -> int:
    """Bytes that the processes of the pod have in memory for themselves."""
    read = "import pathlib; print(pathlib.Path('/sys/fs/cgroup/memory.stat').read_text() if pathlib.Path("
    read += "'/sys/fs/cgroup/memory.stat').exists() else pathlib.Path('/sys/fs/cgroup/memory/memory.stat').read_text())"
    said = place.kubectl("exec", pod(place)["metadata"]["name"], "--", "python3", "-c", read)
    rows = dict(line.split() for line in said.split("\n") if line)
    return int(rows.get("anon") or rows["rss"])


def answer(place: Place) -> str:
    base = f"{address(place.cluster, NAMESPACE, NAME)}/v1"
    with openai.OpenAI(base_url=base, api_key="none", timeout=120, max_retries=0) as client:
        said = client.completions.create(model=NAME, prompt="The capital of France is", max_tokens=4, temperature=0)
    return said.choices[0].text


def serves(place: Place, eventually: Eventually, timeout: float) -> None:
    eventually(place.reached("Ready", "True", "Ready", NAME), timeout=timeout)
    eventually(lambda: takes_connections(address(place.cluster, NAMESPACE, NAME)))


def test_a_service_sleeps_gives_its_memory_back_and_wakes_with_the_same_answer(
    sleepy: Place, home: Place, eventually: Eventually
) -> None:
    serves(sleepy, eventually, START)
    said, before, used = answer(sleepy), runs(sleepy), memory(sleepy)
    assert "Paris" in said

    sleepy.kubectl("annotate", "gisvc", NAME, f"{SLEEP_ANNOTATION}=true")
    eventually(sleepy.reached("Asleep", "True", "Asleep", NAME), timeout=CHANGE)
    eventually(lambda: not takes_connections(address(sleepy.cluster, NAMESPACE, NAME)))
    status = sleepy.status(NAME)
    print(sleepy.kubectl("get", "gisvc", NAME), yaml.safe_dump(status["weights"]))
    assert (status["phase"], status["weights"]["asleep"]) == ("Sleeping", "1/1")
    assert status["weights"]["freedBytes"] > 256 << 20
    assert used - memory(sleepy) > 256 << 20

    sleepy.kubectl("annotate", "gisvc", NAME, f"{SLEEP_ANNOTATION}-")
    serves(sleepy, eventually, CHANGE)
    assert (answer(sleepy), runs(sleepy)) == (said, before)


def test_new_weights_answer_otherwise_and_nothing_restarts(
    sleepy: Place, weights: Path, home: Place, eventually: Eventually
) -> None:
    before, words = runs(sleepy), AutoTokenizer.from_pretrained(weights.parent)
    (paris,), (london,) = (words(text, add_special_tokens=False)["input_ids"] for text in (" Paris", " London"))
    tensors = load_file(weights)
    tensors[EMBEDDING][[paris, london]] = tensors[EMBEDDING][[london, paris]]
    save_file(tensors, weights.with_suffix(".new"), {"format": "pt"})
    weights.with_suffix(".new").chmod(0o644)
    weights.with_suffix(".new").replace(weights)

    sleepy.kubectl("annotate", "gisvc", NAME, f"{RELOAD_ANNOTATION}=london")
    eventually(sleepy.reached("ModelAvailable", "True", "Reloaded", NAME), timeout=CHANGE)
    serves(sleepy, eventually, CHANGE)
    print(sleepy.kubectl("describe", "gisvc", NAME))
    said = answer(sleepy)
    assert ("London" in said, "Paris" in said, runs(sleepy)) == (True, False, before), said
    assert [one["revision"] for one in sleepy.status(NAME)["weights"]["pods"]] == ["london"]


def test_weights_that_are_not_whole_are_refused_and_the_old_ones_serve(
    sleepy: Place, weights: Path, home: Place, eventually: Eventually
) -> None:
    before, said = runs(sleepy), answer(sleepy)
    short = weights.with_suffix(".short")
    short.write_bytes(weights.read_bytes()[:-1000])
    short.replace(weights)
    sleepy.kubectl("annotate", "gisvc", NAME, "--overwrite", f"{RELOAD_ANNOTATION}=short")
    cause = eventually(sleepy.reached("Ready", "False", "ReloadRefused", NAME), timeout=CHANGE)
    assert "not a whole safetensors file" in cause
    eventually(sleepy.reached("Available", "True", "Serving", NAME), timeout=CHANGE)
    eventually(lambda: takes_connections(address(sleepy.cluster, NAMESPACE, NAME)))
    assert (answer(sleepy), runs(sleepy)) == (said, before)
