"""A service over two real nodes: a group of two pods by LeaderWorkerSet, whose own controller runs next to the control
plane. Ready when both pods have proved their graphs; answered; made again with its cause when its worker is killed;
rolled as a group by an edit.

The tests of this file are one story in its order. On CPUs, over gloo between two pods: one stage of SmolLM2 each.
"""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
import yaml

from demo.answer import address
from demo.service import EXAMPLE, NAMESPACE
from testbed import Cluster
from testbed.reach import takes_connections
from tests.eventually import Eventually
from tests.places import Place

pytestmark = pytest.mark.slow

NAME = "groups"
START = 540.0  # s: two pods import torch and capture side by side
ROLE = "leaderworkerset.sigs.k8s.io/worker-index"
END = """
import os, pathlib, signal
for folder in pathlib.Path("/proc").glob("[0-9]*"):
    words = (folder / "cmdline").read_bytes().split(b"\\0")
    if b"graphpod_runtime.engine.ranks.process" in words:
        os.kill(int(folder.name), signal.SIGKILL)
        print("killed", words[words.index(b"--rank") + 1].decode())
"""


@pytest.fixture(scope="module")
def grouped(installed: Cluster) -> Iterator[Place]:
    installed.add_groups()
    place = Place(installed, NAMESPACE)
    place.apply(NAME, **spread())
    yield place
    place.kubectl("delete", "gisvc", NAME, "--ignore-not-found", "--wait", timeout=60)


def spread(**engine: Any) -> dict[str, Any]:
    """The demo's service, with a start of seconds, over two nodes."""
    spec: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())["spec"]
    spec["graph"] |= {"sizes": {"prefill": [48], "decode": [1]}}
    spec["resources"]["requests"]["cpu"] = "300m"
    spec["engine"] = {**spec.get("engine", {}), **engine}
    return {**spec, "parallelism": {"pipeline": 2, "nodes": 2}, "rollout": {"strategy": "Replace"}}


def pods(place: Place) -> dict[str, dict[str, Any]]:
    """The pods of the group by their index."""
    return {one["metadata"]["labels"][ROLE]: dict(one) for one in place.pods(NAME)}


def uids(place: Place) -> set[str]:
    return {one["metadata"]["uid"] for one in pods(place).values()}


def answer(place: Place) -> str:
    base = f"{address(place.cluster, NAMESPACE, NAME)}/v1"
    with openai.OpenAI(base_url=base, api_key="none", timeout=120, max_retries=0) as client:
        said = client.completions.create(model=NAME, prompt="The capital of France is", max_tokens=4, temperature=0)
    return said.choices[0].text


def shown(place: Place) -> None:
    print(place.kubectl("get", "gisvc,lws,statefulsets,pods", "-o", "wide"))


def test_a_group_of_two_pods_on_two_nodes_is_ready_when_both_have_proved_their_graphs(
    grouped: Place, home: Place, eventually: Eventually
) -> None:
    eventually(grouped.reached("Ready", "True", "Ready", NAME), timeout=START)
    shown(grouped)
    group = pods(grouped)
    assert group.keys() == {"0", "1"}
    assert {one["spec"]["nodeName"] for one in group.values()} == {"node1", "node2"}
    read = (
        "import json, urllib.request as u; w = json.load(u.urlopen('http://127.0.0.1:8001/warmup')); "
        "print(w['state'], len(w['ranks']))"
    )
    said = grouped.kubectl("exec", group["0"]["metadata"]["name"], "--", "python3", "-c", read)
    assert said.split() == ["Ready", "2"]
    eventually(lambda: takes_connections(address(grouped.cluster, NAMESPACE, NAME)))
    assert "Paris" in answer(grouped)


def test_a_worker_that_is_killed_has_its_group_made_again_and_the_status_says_why(
    grouped: Place, eventually: Eventually
) -> None:
    before = uids(grouped)
    said = grouped.kubectl("exec", pods(grouped)["1"]["metadata"]["name"], "--", "python3", "-c", END)
    assert said.strip() == "killed 1"
    cause = eventually(grouped.reached("WorkloadAvailable", "False", "RankDied", NAME), timeout=60)
    print(cause)
    eventually(lambda: not uids(grouped) & before, timeout=120)
    assert grouped.status(NAME)["lastFailure"]["reason"] == "RankDied"
    eventually(grouped.reached("Ready", "True", "Ready", NAME), timeout=START)
    shown(grouped)
    assert "RankDied" in grouped.kubectl("get", "events", "--field-selector", f"involvedObject.name={NAME}")
    assert "lastFailure" not in grouped.status(NAME)
    eventually(lambda: takes_connections(address(grouped.cluster, NAMESPACE, NAME)))
    assert "Paris" in answer(grouped)


def test_an_edit_rolls_the_group_as_a_whole(grouped: Place, eventually: Eventually) -> None:
    before = uids(grouped)
    grouped.apply(NAME, **spread(maxBatch=2))
    eventually(lambda: len(uids(grouped)) == 2 and not uids(grouped) & before, timeout=180)
    eventually(grouped.reached("Ready", "True", "Ready", NAME), timeout=START)
    hashes = {one["metadata"]["annotations"]["graphpod.dev/config-hash"] for one in pods(grouped).values()}
    assert hashes == {grouped.status(NAME)["graph"]["configHash"]}
    eventually(lambda: takes_connections(address(grouped.cluster, NAMESPACE, NAME)))
    assert "Paris" in answer(grouped)
