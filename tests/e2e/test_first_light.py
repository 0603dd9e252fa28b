"""The one path everything hangs on: a service applied to a real cluster, an answer from real weights.

The tests of this file are one story in its order: installed, ready, asked, operator gone and back, deleted.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from openai import OpenAI
from transformers import AutoModelForCausalLM, AutoTokenizer

from demo.answer import QUESTION, TOKENS, address
from demo.chart import NAMESPACE as SYSTEM
from demo.chart import RELEASE, install, wait_operator
from demo.counters import Counters, counters, exposition, serving_pod
from demo.local import Testbed
from demo.objects import GaveUp, Manifest, conditions, read
from demo.service import EXAMPLE, NAME, NAMESPACE, SELECTOR, apply, wait_condition
from demo.weights import model_folder
from testbed import Cluster
from tests.api.operator.explained import GRAPHPOD

COUNTED = (
    "graphpod_graphs",
    "graphpod_graph_replays_total",
    "graphpod_graph_fallbacks_total",
    "graphpod_forward_passes_total",
    "graphpod_eager_passes_total",
)
OWNED = (
    "deployments,replicasets,pods,services,endpointslices,configmaps,serviceaccounts,controllerrevisions,"
    "poddisruptionbudgets"
)


@pytest.fixture(scope="module")
def service(installed: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """The demo's service, Ready, with a start of seconds; test_current.py starts the whole ladder."""
    found = yaml.safe_load(EXAMPLE.read_text())
    found["spec"]["graph"] |= {"sizes": {"prefill": [16], "decode": [1, 2]}}
    manifest = tmp_path_factory.mktemp("service") / "service.yaml"
    manifest.write_text(yaml.safe_dump(found))
    apply(installed, manifest)
    return wait_condition(installed, "Ready", lambda _: None)


@pytest.fixture(scope="module")
def client(installed: Cluster, service: Manifest) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{address(installed)}/v1", api_key="none", timeout=120, max_retries=0) as client:
        yield client


def read_counters(cluster: Cluster) -> Counters:
    return counters(exposition(cluster, serving_pod(cluster)), COUNTED)


def total(reading: Counters, metric: str) -> float:
    return sum(value for (name, _), value in reading.items() if name == metric)


def ask(client: OpenAI) -> str:
    messages = [{"role": "user", "content": QUESTION}]
    answer = client.chat.completions.create(model=NAME, messages=messages, temperature=0, max_tokens=TOKENS)
    return answer.choices[0].message.content


def test_it_is_ready_with_every_graph_captured_and_proved(service: Manifest) -> None:
    graph = service["status"]["graph"]
    assert graph["backend"] == "Recorder"
    assert [graph[phase]["effective"] for phase in ("prefill", "decode")] == ["Breakable", "Full"]
    assert [graph[phase]["requested"] for phase in ("prefill", "decode")] == ["Auto", "Auto"]
    for phase in ("prefill", "decode"):
        sizes = graph[phase]["sizes"]
        assert sizes["captured"] == sizes["planned"] > 0
        assert sizes["failed"] == 0
        assert graph[phase]["selfCheck"] == "Passed"
    planned = sum(graph[phase]["sizes"]["planned"] for phase in ("prefill", "decode"))
    assert graph["captured"] == f"{planned}/{planned}"
    now = conditions(service)
    assert {kind for kind, one in now.items() if one["status"] == "True"} >= {
        "Accepted",
        "ModelAvailable",
        "WorkloadAvailable",
        "GraphsCaptured",
        "Ready",
    }
    assert "NoCuda" in {decision["rule"] for decision in graph["decisions"]}


def test_kubectl_get_shows_it_in_its_columns(installed: Cluster, service: Manifest) -> None:
    header, row = installed.kubectl("get", "gisvc", NAME, "-n", NAMESPACE).splitlines()
    assert header.split() == ["NAME", "READY", "STATUS", "PREFILL", "DECODE", "CAPTURED", "REPLICAS", "AGE"]
    assert "Breakable (recorder)" in row
    assert "Full (recorder)" in row


def test_the_answer_names_paris_and_is_the_text_of_transformers(client: OpenAI) -> None:
    folder = model_folder()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": QUESTION}], add_generation_prompt=True, tokenize=False
    )
    prompt = tokenizer(chat, return_tensors="pt")
    tokens = model.generate(**prompt, max_new_tokens=TOKENS, do_sample=False)
    want = tokenizer.decode(tokens[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)
    assert "Paris" in want
    assert ask(client) == want


def test_a_streamed_answer_is_the_same_text(client: OpenAI) -> None:
    messages = [{"role": "user", "content": QUESTION}]
    stream = client.chat.completions.create(
        model=NAME, messages=messages, temperature=0, max_tokens=TOKENS, stream=True
    )
    pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    assert len(pieces) > 2
    assert "".join(pieces) == ask(client)


def test_every_pass_of_an_answer_is_a_replay(installed: Cluster, client: OpenAI, eventually) -> None:
    before = read_counters(installed)
    messages = [{"role": "user", "content": QUESTION}]
    answer = client.chat.completions.create(model=NAME, messages=messages, temperature=0, max_tokens=TOKENS)
    passes = {phase: ("graphpod_forward_passes_total", phase) for phase in ("prefill", "decode")}
    # The first token comes from prefill; each further one is a decode pass.
    enough = before.get(passes["decode"], 0) + answer.usage.completion_tokens - 1

    def counted() -> Counters | None:
        """Counters arrive in beats."""
        reading = read_counters(installed)
        return reading if reading.get(passes["decode"], 0) >= enough else None

    after = eventually(counted, timeout=30)
    for phase in passes:
        replays = ("graphpod_graph_replays_total", phase)
        assert after[replays] > before.get(replays, 0), f"no replay of {phase}"
        assert after[replays] - before.get(replays, 0) == after[passes[phase]] - before.get(passes[phase], 0)
    assert total(after, "graphpod_graph_fallbacks_total") == 0
    assert total(after, "graphpod_eager_passes_total") == 0
    assert total(after, "graphpod_graphs") == total(before, "graphpod_graphs") > 0


def test_top_and_why_read_the_pod_through_the_kubelets_port_forward(installed: Cluster, service: Manifest) -> None:
    def graphpod(*words: str) -> dict[str, Any]:
        command = [GRAPHPOD, *words, "-n", NAMESPACE, "-o", "json"]
        done = subprocess.run(
            command, env=installed.environment(), capture_output=True, text=True, timeout=60, check=True
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    (row,) = [one for one in graphpod("top", "--interval", "1")["services"] if one["name"] == NAME]
    assert (row["troubles"], row["podsAsked"], row["load"]["waiting"]) == ([], 1, 0)
    assert row["load"]["replaysPerSecond"].keys() == {"prefill", "decode"}
    (pod,) = graphpod("why", f"gisvc/{NAME}")["pods"]
    assert (pod["warmup"]["state"], pod["warmup"]["podUID"] != "") == ("Ready", True)
    assert {stage["name"] for stage in pod["warmup"]["stages"]} >= {"Import", "Load"}


def test_without_the_operator_it_goes_on_serving_and_helm_3_brings_it_back(
    installed: Cluster, client: OpenAI, service: Manifest, eventually
) -> None:
    pod = serving_pod(installed)
    Testbed(installed).helm("uninstall", RELEASE, "--namespace", SYSTEM, "--wait")
    assert "Paris" in ask(client)
    assert install(Testbed(installed, "helm3"))
    wait_operator(installed)
    assert serving_pod(installed) == pod
    again = read(installed, "inferenceservice", NAME, NAMESPACE)
    assert again["status"]["graph"] == service["status"]["graph"]


def test_deleting_it_leaves_nothing(installed: Cluster, service: Manifest, eventually) -> None:
    owned = installed.kubectl("get", OWNED, "-n", NAMESPACE, "-l", SELECTOR, "-o", "name").split()
    assert {name.split("/")[0].partition(".")[0] for name in owned} >= {
        "deployment",
        "replicaset",
        "pod",
        "service",
        "configmap",
        "serviceaccount",
    }
    installed.kubectl("delete", "inferenceservice", NAME, "-n", NAMESPACE, "--wait", timeout=60)

    def left() -> list[str]:
        return [
            name
            for name in installed.kubectl("get", OWNED, "-n", NAMESPACE, "-o", "name").split()
            if NAME in name and "weights" not in name
        ]

    eventually(lambda: not left(), timeout=90)


def test_a_refused_service_ends_the_wait_with_its_reason(installed: Cluster, tmp_path: Path) -> None:
    """What the demo would say of a service whose feature is not built."""
    text = EXAMPLE.read_text().replace("prefill: Auto", "prefill: Full")
    manifest = tmp_path / "service.yaml"
    manifest.write_text(text)
    apply(installed, manifest)
    with pytest.raises(GaveUp, match="FeatureNotBuilt"):
        wait_condition(installed, "Ready", lambda _: None, limit=60)
    installed.kubectl("delete", "inferenceservice", NAME, "-n", NAMESPACE, "--wait", timeout=60)
