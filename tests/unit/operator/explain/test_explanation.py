"""`graphpod explain`: every example's golden, the exit codes, and messages that say where."""

import ast
import importlib
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import graphpod_operator.plan.planner as planner
import graphpod_policy
from graphpod_operator import cli
from graphpod_operator.cache.child import Child
from graphpod_operator.explain import explanation, manifest
from graphpod_operator.explain import text as explain_text
from graphpod_policy import Phase, resolve
from tests.unit.operator.explain.plain import PLAIN
from tests.unit.operator.objects import UID, inference_service

ROOT = Path(__file__).parents[4]
EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))
GOLDENS = Path(__file__).parents[1].joinpath("goldens") / "explain"

GPU = PLAIN + "  resources:\n    limits:\n      nvidia.com/gpu: 1\n"

LESS = "Graphs: less than requested. The lines below name the rules."

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
        (PLAIN, 0, "Graphs: as requested."),
        (PLAIN + "  graph:\n    prefill: Disabled\n", 0, "Graphs: as requested."),
        (PLAIN + "  graph:\n    sizes:\n      decode: [1, 99]\n", 3, LESS),
        (PLAIN + "  graph:\n    budget:\n      memory: 1Mi\n", 3, LESS),
        (
            PLAIN + "  graph:\n    decode: Full\n    onUnsupported: Fail\n    sizes:\n      decode: [99]\n",
            4,
            "cannot start: PolicyRefused: spec.graph.decode: rule LadderEmpty excludes Full",
        ),
        (GPU, 0, "Graphs: as requested."),
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
        (["--node", "gpu=H300"], "--node: gpu=H300: expected gpu=KIND with one of T4,"),
        (["--node", "gpu=H200,memory=80Gi"], "--node: gpu=H200,memory=80Gi: expected gpu=KIND with one of T4,"),
        (["--node", "count=2"], "--node: count=2: expected gpu=KIND"),
        (["--node", ""], "--node: '' is not one of gpu, count, memory"),
        (["--node", "cpu=3"], "--node: 'cpu' is not one of gpu, count, memory"),
        (["--node", "gpu=H200,count=few"], "--node: count=few: expected a number of at least 1"),
        (["--node", "gpu=H200,count=0"], "--node: count=0: expected a number of at least 1"),
        (["--node", "memory=lots"], "--node: 'lots' is not a quantity"),
        (["--model-config", "/nowhere/config.json"], "/nowhere/config.json: "),
        (["--diff", "/nowhere/other.yaml"], "/nowhere/other.yaml: No such file or directory"),
        (["gisvc/x"], "no service given: use -f FILE, or gisvc/NAME for a live service"),
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
        "error: no service given: use -f FILE, or gisvc/NAME for a live service",
        "error: pod/x: expected gisvc/NAME of a live service; for a file use -f FILE",
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


def test_several_services_begin_with_a_line_for_each(run: Explain) -> None:
    two = GPU.replace("gpu: 1", "gpu: 2").replace("demo", "other")
    code, told, _ = run(f"{PLAIN}---\n{two}")
    assert code == 4
    assert told.splitlines()[:4] == [
        "2 services, 1 cannot start",
        "  default/demo   can start",
        "  default/other  cannot start: FeatureNotBuilt",
        "",
    ]


def test_a_list_is_read_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in `kubectl get gisvc -o json | graphpod explain -f -`."""
    listed = {"apiVersion": "v1", "kind": "List", "items": [yaml.safe_load(PLAIN)]}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(listed).encode())))
    assert cli.main(["explain", "-f", "-"]) == 0
    assert "default/demo  (standard input)" in capsys.readouterr().out


def test_every_mistake_of_a_file_has_its_line(run: Explain) -> None:
    code, told, complained = run(PLAIN + "  replicas: many\n  engine: {maxBatch: 0}\n")
    assert (code, told) == (2, "")
    assert complained.splitlines() == [
        'error: FILE:8: spec.replicas: expected a whole number, found "many"',
        "error: FILE:9: spec.engine.maxBatch: must be at least 1, found 0",
    ]


def test_many_mistakes_are_counted_after_the_first_ones(run: Explain) -> None:
    sizes = ", ".join("x" for _ in range(100))
    _, _, complained = run(PLAIN + f"  graph: {{sizes: {{decode: [{sizes}]}}}}\n")
    assert len(complained.splitlines()) == 41
    assert complained.splitlines()[-1] == "error: and 60 more"


def test_what_was_asked_in_bytes_is_a_quantity(run: Explain) -> None:
    _, told, _ = run(GPU + "  engine: {hostCache: {size: 200Gi}}\n")
    assert told.startswith("cannot start: FeatureNotBuilt: spec.engine.hostCache: host KV cache (200Gi) is not built")


def test_sizes_and_batch_of_ranks_say_that_they_are_of_one(run: Explain) -> None:
    _, told, _ = run(GPU.replace("gpu: 1", "gpu: 4") + "  parallelism: {tensor: 4, data: 4}\n")
    told = " ".join(told.split())
    assert "tokens of one rank: " in told
    assert "sequences of one rank: " in told
    assert "batch 256 (Auto) of each of 4 ranks, 1024 in all" in told


def test_colour_is_for_terminals_only(run: Explain) -> None:
    two = GPU.replace("gpu: 1", "gpu: 2")
    assert "\x1b" not in run(two)[1]
    (found,) = manifest.read("FILE", two.encode())
    assert "\x1b[31m" in explain_text.text(explanation.explain(found), explain_text.coloured)


# node and model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    config = {
        "architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 36, "hidden_size": 4096, "vocab_size": 151936,
        "intermediate_size": 12288, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
        "max_position_embeddings": 40960,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return path


def test_a_node_and_a_model_tell_what_the_engine_will_make_of_the_plan(run: Explain, model: Path) -> None:
    big = GPU + "  engine:\n    maxModelLen: 20000\n    maxBatch: 512\n"
    _, told, _ = run(big, "-o", "json", "--node", "gpu=L4,count=1", "--model-config", str(model))
    there = json.loads(told)
    assert there["prefill"]["expected"] == "Breakable"
    assert there["prefill"]["sizes"][-1] == there["prefillChunk"] == 2048
    assert {d["rule"] for d in there["decisions"] if d["stage"] == "Engine"} == {"LadderDevice"}
    assert there["notes"] == []
    assert "requested Auto → planned Breakable → expected Breakable" in run(big, "--node", "memory=24Gi")[1]


@pytest.mark.parametrize(
    ("spec", "node", "limits", "said"),
    [
        (GPU, "gpu=H200", (40960, 256, 700_000), "context 40960 tokens (Auto); batch 256 (Auto); KV cache of about "),
        (GPU + "  engine: {maxModelLen: 9000}\n", "gpu=H100", (9000, 256, 350_000), "context 9000 tokens; batch 256 "),
        (GPU + "  engine: {kvCacheMemory: 450Mi}\n", "gpu=H100", (3200, 256, 3200), "about 3200 tokens: one such con"),
        (GPU, None, (None, 256, None), "context the model's own length (Auto), as far as the KV cache holds it; batch"),
        (PLAIN, None, (2048, 8, None), "context 2048 tokens (Auto), as far as the KV cache holds it; batch 8 (Auto)"),
    ],
)
def test_context_batch_and_kv_tokens_are_what_a_pod_would_derive(
    run: Explain, model: Path, spec: str, node: str | None, limits: tuple[int | None, ...], said: str
) -> None:
    given = ["--node", node, "--model-config", str(model)] if node else []
    assert said in " ".join(run(spec, *given)[1].split())
    found = json.loads(run(spec, *given, "-o", "json")[1])["limits"]
    context, batch, tokens = limits
    assert (found["maxModelLen"], found["maxBatch"]) == (context, batch)
    assert found["kvTokens"] == tokens if tokens in (None, 3200) else tokens < found["kvTokens"] < 1.3 * tokens


def test_prefix_cache_and_prefill_budget_stand_next_to_the_limits(run: Explain) -> None:
    given = PLAIN + "  engine: {prefixCache: 'Off', prefillBudget: 64}\n"
    for spec, asked, words in ((PLAIN, ("Auto", None), False), (given, ("Off", 64), True)):
        found = json.loads(run(spec, "-o", "json")[1])["limits"]
        assert (found["prefixCache"], found["prefillBudget"]) == asked
        text = " ".join(run(spec)[1].split())
        assert ("64 prompt tokens between two decode passes; no prefix cache" in text) is words


def test_a_live_service_tells_what_its_pods_serve(run: Explain) -> None:
    told = "context 40960 (Auto), batch 256 (Auto), 1.2M KV tokens"
    raw = json.loads(live(PLAIN))
    raw["status"]["engine"] = {"maxModelLen": 40960, "maxBatch": 256, "kvTokens": 1_200_000, "display": told}
    assert f"  serves    {told}\n" in run(json.dumps(raw))[1]
    found = json.loads(run(json.dumps(raw), "-o", "json")[1])
    assert found["live"]["limits"] == {"maxModelLen": 40960, "maxBatch": 256, "kvTokens": 1_200_000}


@pytest.mark.parametrize(
    ("spec", "node", "said"),
    [
        (GPU.replace("gpu: 1", "gpu: 8"), "gpu=H200,count=4", "a pod requests 8 GPUs, and 4 are available"),
        (PLAIN, "gpu=H200", "the service requests no GPU: the node's GPUs are not used"),
        (GPU, "gpu=T4", "the weights of demo take 15.3 GiB in float16, and 14.2 GiB are free"),
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
        (
            "  rollout:\n    strategy: Replace\n",
            "No pod is replaced; other fields of the service's objects change.",
            None,
        ),
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
    assert text.splitlines()[0].startswith(pods)


def test_a_difference_is_printed_in_units_and_a_ladder_by_its_ends(run: Explain, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(GPU)
    told = run(PLAIN, "--diff", str(other))[1]
    for said in (
        "prefill.sizes\n  - 22 of up to 256 tokens: 4 8 12 16 20 24 28 32 … 224 240 256\n  + 74 of up to 16384 tokens",
        "prefill.bytes\n  - 69.7 MiB\n  + 2.3 GiB\n",
        "limits.maxModelLen\n  - 2048 tokens\n  + the model's own length\n",
        "limits.maxBatch\n  - 8 sequences\n  + 256 sequences\n",
        "budget.limitSeconds\n  - 66 min\n",
        "dtype\n  - float32\n  + Auto\n",
    ):
        assert said in told
    assert told.count("\ndecisions\n") == 1
    rows = json.loads(run(PLAIN, "--diff", str(other), "-o", "json")[1])["differences"]
    (row,) = (row for row in rows if row["path"] == "prefill.sizes")
    assert (len(row["before"]), len(row["after"])) == (22, 74)


def test_a_change_to_a_service_that_cannot_start_says_so_first(run: Explain, tmp_path: Path, model: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(PLAIN + "  engine:\n    maxModelLen: 50000\n")
    code, told, _ = run(PLAIN, "--diff", str(other), "--model-config", str(model))
    assert code == 4
    assert told.startswith("cannot start: ContextTooLong: spec.engine.maxModelLen 50000 is more than the 40960")


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
    assert "(prefill Piecewise → Breakable) and replaces every pod" in told
    _, told, _ = run(live(PLAIN, **running), "-o", "json")
    assert json.loads(told)["live"]["adopting"]["changes"] is True


def test_a_live_service_of_the_same_rules_would_not_change(run: Explain) -> None:
    _, told, _ = run(PLAIN, "-o", "json")
    same = {"configHash": json.loads(told)["configHash"], "resolverRevision": graphpod_policy.RESOLVER_REVISION}
    _, told, _ = run(live(PLAIN, **same))
    assert "Adopting the same rules changes nothing in the engine's configuration." in told


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
        assert "planned unknown, running nothing yet" in told
    assert run(json.dumps(raw), "-o", "json")[0] == 0


def test_a_live_service_is_fetched_from_the_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from graphpod_operator.explain import live_object

    asked: list[tuple[str, str]] = []

    def fetch(namespace: str, name: str) -> tuple[dict[str, Any], tuple[Child, ...]]:
        asked.append((namespace, name))
        return json.loads(live(PLAIN)), ()

    monkeypatch.setattr(live_object, "fetch", fetch)
    kinds = ("gisvc", "inferenceservices.graphpod.dev", "inferenceservice.graphpod.dev", "inferenceservices")
    for kind in kinds:
        assert cli.main(["explain", f"{kind}/demo", "-n", "ns"]) == 0
    assert asked == [("ns", "demo")] * len(kinds)
    assert "In the cluster" in capsys.readouterr().out


def test_a_service_whose_objects_would_be_too_large_cannot_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quoted = [{"name": f"V{number}", "value": '"' * 4000} for number in range(58)]
    file = tmp_path / "service.json"
    file.write_text(json.dumps(inference_service(podTemplate={"env": quoted})))
    assert cli.main(["explain", "-f", str(file)]) == 4
    said = "cannot start: SpecTooLarge: spec.podTemplate.env: the ControllerRevision"
    assert capsys.readouterr().out.startswith(said)


# one resolver, one table


def test_operator_explain_and_engine_call_the_same_resolver() -> None:
    """The very same function object; the engine's files are read, not imported, because they import torch."""
    engines = importlib.import_module("graphpod_policy.config").resolve
    assert planner.resolve is explanation.resolve is engines is resolve is graphpod_policy.resolve
    engine = ROOT / "runtime/graphpod_runtime/engine/start"
    for file, names in (("starter.py", {"refine"}), ("degrade.py", {"shorten", "weaken"})):
        tree = ast.parse((engine / file).read_text())
        imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "graphpod_policy"]
        assert names <= {alias.name for node in imports for alias in node.names}
    assert "config.resolved()" in (engine / "starter.py").read_text()


def test_without_a_cluster_it_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "kubeconfig").write_text("apiVersion: v1\nkind: Config\n")
    monkeypatch.setattr("kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
    assert cli.main(["explain", "gisvc/demo"]) == 2
    complained = capsys.readouterr().err
    assert complained.startswith("error: gisvc/demo: no cluster to ask: ")
    assert complained.endswith("; set KUBECONFIG\n")
