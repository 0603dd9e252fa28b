"""`graphpod explain`: every example's golden, the exit codes, and messages that say where."""

import ast
import importlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import graphpod_operator.plan as planner
import graphpod_policy
from graphpod_operator import cli, explain, explain_text, manifest
from graphpod_operator.observe import Child
from graphpod_policy import Phase, resolve
from tests.unit.operator.objects import UID

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))
GOLDENS = Path(__file__).with_name("explain")

PLAIN = """\
apiVersion: graphpod.dev/v1alpha1
kind: InferenceService
metadata:
  name: demo
spec:
  model:
    uri: pvc://weights/model
"""
GPU = PLAIN + "  resources:\n    limits:\n      nvidia.com/gpu: 1\n"

LESS = "Graphs: less than asked; the lines below say which rule took it."

Explain = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Explain:
    """`graphpod explain` over a file with the given text: exit code, what it printed, what it complained of."""

    def explained(text: str, *arguments: str) -> tuple[int, str, str]:
        file = tmp_path / "service.yaml"
        file.write_text(text)
        code = cli.main(["explain", "-f", str(file), *arguments])
        printed = capsys.readouterr()
        return code, printed.out.replace(str(file), "FILE"), printed.err.replace(str(file), "FILE")

    return explained


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_explained_as_its_golden_says(
    example: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With UPDATE_GOLDENS=1 in the environment the output is written instead; read the diff before you commit it."""
    monkeypatch.chdir(ROOT)
    code = cli.main(["explain", "-f", str(example.relative_to(ROOT))])
    told = capsys.readouterr().out + f"exit code {code}\n"
    golden = GOLDENS / f"{example.stem}.txt"
    if os.environ.get("UPDATE_GOLDENS"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(told)
    assert told == golden.read_text()
    assert {line.stem for line in GOLDENS.glob("*.txt")} <= {path.stem for path in EXAMPLES}


def test_no_line_is_wider_than_a_terminal_is_thought_to_be() -> None:
    for golden in GOLDENS.glob("*.txt"):
        body = [line for line in golden.read_text().splitlines() if "examples/" not in line]
        assert max(map(len, body)) <= explain_text.WIDTH, golden


# exit codes


@pytest.mark.parametrize(
    ("text", "code", "verdict"),
    [
        (PLAIN, 0, "Graphs: as asked."),
        (PLAIN + "  graph:\n    prefill: Disabled\n", 0, "Graphs: as asked."),
        (PLAIN + "  graph:\n    sizes:\n      decode: [1, 99]\n", 3, LESS),
        (PLAIN + "  graph:\n    budget:\n      memory: 1Mi\n", 3, LESS),
        (
            PLAIN + "  graph:\n    decode: Full\n    onUnsupported: Fail\n    sizes:\n      decode: [99]\n",
            4,
            "cannot start: PolicyRefused: spec.graph.decode: rule LadderEmpty stands against Full",
        ),
        (GPU, 0, "Graphs: as asked."),
        (GPU.replace("gpu: 1", "gpu: 2"), 4, "cannot start: FeatureNotBuilt: spec.resources.limits"),
        (PLAIN + "  graph:\n    compile: Inductor\n", 3, LESS),
    ],
)
def test_the_exit_code_says_how_the_plan_compares_with_what_was_asked(
    run: Explain, text: str, code: int, verdict: str
) -> None:
    ended, told, complained = run(text)
    assert (ended, complained) == (code, "")
    first, *rest = told.splitlines()
    assert first == "can start" if code != 4 else first.startswith(verdict)
    assert code == 4 or rest[0] == verdict


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--node", "gpu=H300"], "--node: gpu=H300: write gpu=KIND with one of T4,"),
        (["--node", "gpu=H200,memory=80Gi"], "--node: gpu=H200,memory=80Gi: write gpu=KIND with one of T4,"),
        (["--node", "count=2"], "--node: count=2: write gpu=KIND"),
        (["--node", ""], "--node: '' is not one of gpu, count, memory"),
        (["--node", "cpu=3"], "--node: 'cpu' is not one of gpu, count, memory"),
        (["--node", "gpu=H200,count=few"], "--node: count=few: expected a number of at least 1"),
        (["--node", "gpu=H200,count=0"], "--node: count=0: expected a number of at least 1"),
        (["--node", "memory=lots"], "--node: 'lots' is not a quantity"),
        (["--model-config", "/nowhere/config.json"], "/nowhere/config.json: "),
        (["--diff", "/nowhere/other.yaml"], "/nowhere/other.yaml: No such file or directory"),
        (["gisvc/x"], "give a file with -f, or gisvc/NAME of a live service"),
    ],
)
def test_an_argument_that_is_wrong_says_what_to_write(run: Explain, arguments: list[str], complaint: str) -> None:
    code, _, complained = run(PLAIN, *arguments)
    assert code == 2
    assert complained.startswith(f"error: {complaint}")


def test_without_a_file_or_a_name_it_says_what_to_give(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain"]) == 2
    assert cli.main(["explain", "pod/x"]) == 2
    complained = capsys.readouterr().err.splitlines()
    assert complained == [
        "error: give a file with -f, or gisvc/NAME of a live service",
        "error: pod/x: write gisvc/NAME for a live service, -f FILE for a file",
    ]


# forms


def test_json_and_yaml_say_the_same(run: Explain) -> None:
    _, as_json, _ = run(PLAIN, "-o", "json")
    _, as_yaml, _ = run(PLAIN, "-o", "yaml")
    told = json.loads(as_json)
    assert told == yaml.safe_load(as_yaml)
    assert (told["verdict"], told["prefill"]["planned"], told["decode"]["sizes"]) == (
        "AsAsked",
        "Breakable",
        [1, 2, 4, 8],
    )
    assert {decision["rule"] for decision in told["decisions"]} == {"NoCuda"}
    assert told["gates"][0]["rule"] == "PaddingGate"


def test_the_gaps_of_a_ladder_are_printed_with_the_sizes_that_close_them(run: Explain) -> None:
    sizes = PLAIN + "  graph:\n    sizes:\n      prefill: [16, 64, 256, 1024]\n"
    told = " ".join(run(sizes)[1].split())
    assert "31% of the lengths up to 1024 run eagerly (PaddingGate): 65–127, 257–511; add sizes 128, 512" in told
    closed = sizes.replace("256, 1024", "128, 256, 512, 1024")
    assert "run eagerly (PaddingGate)" not in run(closed)[1]
    assert json.loads(run(sizes, "-o", "json")[1])["prefill"]["gaps"] == [[65, 127], [257, 511]]


def test_several_services_of_a_file_are_all_explained(run: Explain) -> None:
    other = PLAIN.replace("demo", "other") + "  graph:\n    sizes:\n      decode: [1, 99]\n"
    code, told, _ = run(f"{PLAIN}---\n{other}", "-o", "json")
    assert code == 3
    assert [row["name"] for row in json.loads(told)] == ["demo", "other"]


def test_colour_is_for_terminals_only(run: Explain) -> None:
    two = GPU.replace("gpu: 1", "gpu: 2")
    assert "\x1b" not in run(two)[1]
    (found,) = manifest.read("FILE", two.encode())
    assert "\x1b[31m" in explain_text.text(explain.explain(found), explain_text.coloured)


# node and model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    config = {
        "architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 36, "hidden_size": 4096, "vocab_size": 151936,
        "intermediate_size": 12288, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return path


def test_a_node_and_a_model_tell_what_the_engine_will_make_of_the_plan(run: Explain, model: Path) -> None:
    big = GPU + "  engine:\n    maxModelLen: 20000\n    maxBatch: 512\n"
    _, told, _ = run(big, "-o", "json", "--node", "gpu=L4,count=1", "--model-config", str(model))
    there = json.loads(told)
    assert there["prefill"]["expected"] == "Breakable"
    assert there["prefill"]["sizes"][-1] == 2048
    assert {d["rule"] for d in there["decisions"] if d["stage"] == "Engine"} == {"LadderDevice"}
    assert there["notes"] == []
    assert "asked Auto → planned Breakable → expected there Breakable" in run(big, "--node", "memory=24Gi")[1]


@pytest.mark.parametrize(
    ("spec", "node", "said"),
    [
        (GPU.replace("gpu: 1", "gpu: 8"), "gpu=H200,count=4", "the service asks for 8 GPUs a pod, and 4 are there"),
        (PLAIN, "gpu=H200", "the service asks for no GPU: those of the node are not used"),
        (GPU, "gpu=T4", "the weights of demo take 15.3 GiB in float16, 14.2 GiB are free"),
    ],
)
def test_a_node_that_does_not_fit_is_noted(run: Explain, model: Path, spec: str, node: str, said: str) -> None:
    _, told, _ = run(spec, "-o", "json", "--node", node, "--model-config", str(model))
    found = json.loads(told)
    assert any(line.startswith(said) for line in (*found["notes"], *(one["what"] for one in found["obstacles"])))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("[]", "expected an object"), ("{", "Expecting property name"), ('{"hidden_size": 0}', "num_attention_heads")],
)
def test_a_model_config_that_is_none_says_why(run: Explain, tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    code, _, complained = run(PLAIN, "--model-config", str(path))
    assert code == 2
    assert complaint in complained


# differences


@pytest.mark.parametrize(
    ("change", "pods", "path"),
    [
        ("", "Nothing changes in the cluster.", None),
        ("  replicas: 3\n", "No pod is replaced; replicas go from 1 to 3.", None),
        ("  graph:\n    decode: Breakable\n", "Every pod is replaced, one after the other", "decode.planned"),
        ("  engine:\n    maxBatch: 4\n", "Every pod is replaced, one after the other", "decode.sizes"),
        ("  engine:\n    deterministic: true\n", "The operator refuses the new spec (FeatureNotBuilt)", "obstacles"),
        ("  rollout:\n    strategy: Replace\n", "No pod is replaced; other fields of its objects change.", None),
    ],
)
def test_a_change_of_spec_tells_what_changes_and_which_pods(
    run: Explain, tmp_path: Path, change: str, pods: str, path: str | None
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(PLAIN + change)
    _, told, _ = run(PLAIN, "--diff", str(other), "-o", "json")
    found = json.loads(told)
    assert found["pods"].startswith(pods)
    paths = {row["path"] for row in found["differences"]}
    assert path in paths if path else not paths
    text = run(PLAIN, "--diff", str(other))[1]
    assert text.splitlines()[-1].startswith(pods)


def test_a_decision_that_stays_is_no_difference(run: Explain, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(PLAIN + "  graph:\n    decode: Breakable\n")
    assert "NoCuda" not in run(PLAIN, "--diff", str(other))[1]
    other.write_text(PLAIN + "  graph:\n    decode: Disabled\n")
    told = run(PLAIN, "--diff", str(other))[1].splitlines()
    place = told.index("decisions")
    assert told[place + 1].startswith("  - NoCuda (decode, Adjusted)")
    assert not [line for line in told if line.rstrip() in ("  -", "  +")]


# a live service


def live(text: str, **graph: Any) -> str:
    raw = yaml.safe_load(text)
    raw["metadata"] |= {"namespace": "ns", "uid": UID}
    phases = {phase.value: {"planned": planned} for phase, planned in zip(Phase, ("Breakable", "Full"), strict=True)}
    status = {"captured": "26/26", "resolverRevision": "2026-01-01.1", "configHash": "0123456789", **phases, **graph}
    return json.dumps({**raw, "status": {"graph": status}})


def test_a_live_service_tells_what_runs_and_what_adopting_newer_rules_would_change(run: Explain) -> None:
    running = {"prefill": {"planned": "Piecewise", "effective": "Disabled"}}
    _, told, _ = run(live(PLAIN, **running))
    assert "prefill   planned Piecewise, running Disabled" in told
    assert "decode    planned Full, running nothing yet" in told
    assert "(prefill Piecewise → Breakable) and replace every pod" in told
    _, told, _ = run(live(PLAIN, **running), "-o", "json")
    assert json.loads(told)["live"]["adopting"]["changes"] is True


def test_a_live_service_of_the_same_rules_would_not_change(run: Explain) -> None:
    _, told, _ = run(PLAIN, "-o", "json")
    same = {"configHash": json.loads(told)["configHash"], "resolverRevision": graphpod_policy.RESOLVER_REVISION}
    _, told, _ = run(live(PLAIN, **same))
    assert "Adopting the same rules would change nothing in the engine's configuration." in told


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"graph": {}},
        {"graph": {"prefill": {}}},
        {"graph": {"prefill": None, "decode": "Full", "captured": 3, "configHash": []}},
        {"graph": {"captured": "1/2"}, "conditions": [{"type": "EngineUpdateAvailable", "status": "True"}, 3]},
        {"graph": {"captured": "1/2"}, "conditions": {"type": "Ready"}},
        "none",
    ],
)
def test_a_status_that_somebody_edited_is_explained_as_far_as_it_goes(run: Explain, status: Any) -> None:
    raw = {**json.loads(live(PLAIN)), "status": status}
    code, told, error = run(json.dumps(raw))
    assert (code, error) == (0, "")
    if isinstance(status, dict) and status.get("graph"):
        assert "planned not told, running nothing yet" in told
    assert run(json.dumps(raw), "-o", "json")[0] == 0


def test_a_live_service_is_fetched_from_the_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from graphpod_operator import explain_cluster

    asked: list[tuple[str, str]] = []

    def fetch(namespace: str, name: str) -> tuple[dict[str, Any], tuple[Child, ...]]:
        asked.append((namespace, name))
        return json.loads(live(PLAIN)), ()

    monkeypatch.setattr(explain_cluster, "fetch", fetch)
    assert cli.main(["explain", "gisvc/demo", "-n", "ns"]) == 0
    assert asked == [("ns", "demo")]
    assert "In the cluster" in capsys.readouterr().out


# one resolver, one table


def test_operator_explain_and_engine_call_the_same_resolver() -> None:
    """The very same function object; the engine's files are read, not imported, because they import torch."""
    engines = importlib.import_module("graphpod_policy.config").resolve
    assert planner.resolve is explain.resolve is engines is resolve is graphpod_policy.resolve
    engine = ROOT / "runtime/graphpod_runtime/engine"
    for file, names in (("start.py", {"refine"}), ("walk.py", {"shorten", "weaken"})):
        tree = ast.parse((engine / file).read_text())
        imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "graphpod_policy"]
        assert names <= {alias.name for node in imports for alias in node.names}
    assert "config.resolved()" in (engine / "start.py").read_text()


def test_without_a_cluster_it_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "kubeconfig").write_text("apiVersion: v1\nkind: Config\n")
    monkeypatch.setattr("kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
    assert cli.main(["explain", "gisvc/demo"]) == 2
    complained = capsys.readouterr().err
    assert complained.startswith("error: gisvc/demo: no cluster to ask: ")
    assert complained.endswith("; set KUBECONFIG\n")
