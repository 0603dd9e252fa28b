"""A service of several ranks on a real node: one container with a process for each, Ready, and restarted with its cause
in the status when one of them is killed. It becomes a pipeline by an edit.

The tests of this file are one story in its order. On CPUs, over gloo; SmolLM2 has three key-value heads, so there are
three ranks.
"""

import re
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

NAME, RANKS = "ranks", 3
START = 420.0  # s: three processes import torch and capture side by side
KILL = """
import os, pathlib, signal
for folder in pathlib.Path("/proc").glob("[0-9]*"):
    words = (folder / "cmdline").read_bytes().split(b"\\0")
    if b"graphpod_runtime.engine.ranks.process" in words and words[words.index(b"--rank") + 1] == b"1":
        os.kill(int(folder.name), signal.SIGKILL)
        print("killed", folder.name)
"""


@pytest.fixture(scope="module")
def divided(installed: Cluster) -> Iterator[Place]:
    place = Place(installed, NAMESPACE)
    place.apply(NAME, **spread(tensor=RANKS))
    yield place
    place.kubectl("delete", "gisvc", NAME, "--ignore-not-found", "--wait", timeout=60)


def spread(**parallelism: int) -> dict[str, Any]:
    """The demo's service, with a start of seconds, over several ranks."""
    spec: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())["spec"]
    spec["graph"] |= {"sizes": {"prefill": [48], "decode": [1]}}
    spec["resources"]["requests"]["cpu"] = "500m"
    return {**spec, "parallelism": parallelism}


def pod(place: Place) -> dict[str, Any]:
    (found,) = place.pods(NAME)
    return dict(found)


def answer(place: Place) -> str:
    base = f"{address(place.cluster, NAMESPACE, NAME)}/v1"
    with openai.OpenAI(base_url=base, api_key="none", timeout=120, max_retries=0) as client:
        said = client.completions.create(model=NAME, prompt="The capital of France is", max_tokens=4, temperature=0)
    return said.choices[0].text


def test_ranks_of_one_container_answer_and_a_killed_one_restarts_it_with_its_cause_in_the_status(
    divided: Place, home: Place, eventually: Eventually
) -> None:
    eventually(divided.reached("Ready", "True", "Ready", NAME), timeout=START)
    eventually(lambda: takes_connections(address(divided.cluster, NAMESPACE, NAME)))
    assert "Paris" in answer(divided)
    before = pod(divided)

    name = before["metadata"]["name"]
    said = divided.kubectl("exec", name, "--", "python3", "-c", KILL)
    assert re.fullmatch(r"killed \d+", said.strip()), said
    cause = eventually(divided.reached("WorkloadAvailable", "False", "RankDied", NAME), timeout=60)
    print(divided.kubectl("get", "gisvc", NAME, "-o", "wide"), divided.kubectl("describe", "gisvc", NAME))
    assert f"rank 1 of {RANKS} has ended at Ready: signal SIGKILL; see kubectl -n {NAMESPACE} logs {name}" in cause
    (status,) = pod(divided)["status"]["containerStatuses"]
    ended = (status["lastState"] or status["state"])["terminated"]
    assert (ended["exitCode"], ended["message"].split(":")[0]) == (31, "RankDied")

    eventually(divided.reached("Ready", "True", "Ready", NAME), timeout=START)
    assert "Paris" in answer(divided)
    after = pod(divided)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 1


def test_the_service_becomes_a_pipeline_by_an_edit_and_answers_the_same(divided: Place, eventually: Eventually) -> None:
    before, said = pod(divided), answer(divided)
    divided.apply(NAME, **spread(pipeline=2))
    eventually(
        lambda: [one["metadata"]["uid"] for one in divided.pods(NAME)] != [before["metadata"]["uid"]], timeout=60
    )
    eventually(divided.reached("Ready", "True", "Ready", NAME), timeout=START)
    eventually(lambda: pod(divided)["metadata"]["uid"] != before["metadata"]["uid"], timeout=120)
    eventually(lambda: takes_connections(address(divided.cluster, NAMESPACE, NAME)))
    assert answer(divided) == said
    name = pod(divided)["metadata"]["name"]
    read = "import json, urllib.request as u; print(json.load(u.urlopen('http://127.0.0.1:8001/warmup'))['pipelineLayers'])"
    assert divided.kubectl("exec", name, "--", "python3", "-c", read).strip() == "[15, 15]"
