"""`graphpod explain`: every example's golden, the exit codes, and messages that say where."""

import ast
import importlib
import io
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import graphpod_operator.plan.desired_children as planner
import graphpod_policy
from graphpod_operator import cli
from graphpod_operator.explain import explanation, manifest
from graphpod_operator.explain import text as explain_text
from graphpod_policy import Budget, resolve
from tests.unit.operator.explain.plain import GPU, PLAIN, Explain
from tests.unit.operator.objects import inference_service

ROOT = Path(__file__).parents[4]
EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))
GOLDENS = Path(__file__).parents[1].joinpath("goldens") / "explain"

LESS = "Graphs: less than requested; the lines below name the rules."


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
    assert first.startswith("can start by its spec; not checked: the model" if code != 4 else verdict)
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
        (["gisvc/x"], "-f FILE and NAME are both given: use -f for a file, or NAME for a live service"),
    ],
)
def test_an_argument_that_is_wrong_says_what_to_write(run: Explain, arguments: list[str], complaint: str) -> None:
    code, _, complained = run(PLAIN, *arguments)
    assert code == 2
    assert complained.startswith(f"error: {complaint}")


def test_without_a_file_or_a_name_it_says_what_to_give(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain"]) == 2
    assert cli.main(["explain", "pod/x"]) == 2
    assert cli.main(["explain", "chat.yaml"]) == 2
    complained = capsys.readouterr().err.splitlines()
    assert complained == [
        "error: no service given: use -f FILE, or NAME for a live service",
        "error: pod/x: expected NAME or gisvc/NAME of a live service; for a file use -f FILE",
        "error: chat.yaml: expected NAME or gisvc/NAME of a live service; for a file use -f FILE",
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
        "  default/demo   can start by its spec",
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


@pytest.mark.parametrize(
    "text",
    [
        PLAIN + '  "\\e[2J\\u202e": 1\n',
        PLAIN.replace("InferenceService", '"\\0\\e[2J"'),
        PLAIN + f"  {'x' * 100_000}: 1\n",
        PLAIN + f'  role: "\\e]0;{"x" * 5000}\\a"\n',
    ],
    ids=["field", "kind", "long field", "value"],
)
def test_a_file_of_somebody_else_drives_no_terminal_and_fills_none(run: Explain, text: str) -> None:
    code, told, complaint = run(text)
    assert code == 2
    assert complaint.startswith("error: ")
    assert all(letter.isprintable() or letter == "\n" for letter in told + complaint)
    assert len(complaint) < 3000


def test_many_mistakes_are_counted_after_the_first_ones(run: Explain) -> None:
    sizes = ", ".join("x" for _ in range(100))
    _, _, complained = run(PLAIN + f"  graph: {{sizes: {{decode: [{sizes}]}}}}\n")
    assert len(complained.splitlines()) == 41
    assert complained.splitlines()[-1] == "error: and 60 more"


def test_what_was_asked_in_bytes_is_a_quantity(run: Explain) -> None:
    _, told, _ = run(GPU + "  engine: {cpuOffload: {size: 200Gi}}\n")
    assert told.startswith("cannot start: FeatureNotBuilt: spec.engine.cpuOffload: CPU weight offload (200Gi) is not")


def test_a_host_cache_that_the_memory_limit_does_not_hold_is_refused_with_both_numbers(run: Explain) -> None:
    limited = GPU + "      memory: 32Gi\n"
    _, told, _ = run(limited + "  engine: {hostCache: {size: 32Gi}}\n")
    told = " ".join(told.split())
    assert told.startswith(
        "cannot start: HostCacheInvalid: spec.engine.hostCache.size 32Gi does not fit into the pod's memory limit of "
        "32Gi, of which front and engine themselves take 512 MiB; lower it, or raise spec.resources.limits.memory to "
        "more than 33280Mi"
    )
    code, told, _ = run(limited + "  engine: {hostCache: {size: 31Gi}}\n")
    assert code == 0
    assert "host KV cache of 31Gi, part of spec.resources.limits.memory" in " ".join(told.split())


def test_a_host_cache_without_a_prefix_cache_is_refused(run: Explain) -> None:
    _, told, _ = run(GPU + "  engine: {hostCache: {size: 1Gi}, prefixCache: 'Off'}\n")
    assert "spec.engine.hostCache.size 1Gi holds prefixes, and spec.engine.prefixCache is Off" in " ".join(told.split())


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


def test_where_the_weights_alone_do_not_fit_no_advice_is_about_the_memory_of_graphs(run: Explain) -> None:
    config = Path(__file__).parents[4] / "benchmarks/shapes/qwen3-8b/config.json"
    _, told, _ = run(GPU, "-o", "json", "--node", "gpu=T4", "--model-config", str(config))
    there = json.loads(told)
    assert [one["reason"] for one in there["obstacles"]] == ["WeightsTooLarge"]
    assert not {"LadderMemory", "LadderEmpty"} & {one["rule"] for one in there["decisions"]}


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


@pytest.mark.parametrize(
    ("spec", "node", "said"),
    [
        (GPU.replace("gpu: 1", "gpu: 8"), "gpu=H200,count=4", "8 GPUs are needed, and 4 are available"),
        (GPU.replace("gpu: 1", "gpu: 2"), "gpu=H200,count=1", "2 GPUs are needed, and 1 is available"),
        (GPU.replace("gpu: 1", "gpu: 2"), "gpu=H200", "--node gpu=H200 is 1 GPU; for 2 use --node gpu=H200,count=2"),
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


def test_a_model_config_that_is_not_there_or_a_folder_says_so(run: Explain, tmp_path: Path) -> None:
    for path, says in ((tmp_path, f"a folder; give {tmp_path}/config.json"), (tmp_path / "none", "No such file")):
        code, _, complained = run(PLAIN, "--model-config", str(path))
        assert (code, complained.startswith(f"error: {path}: {says}")) == (2, True)


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


@pytest.mark.parametrize(
    ("gpu", "kernels", "because"), [("A100", None, "Fa3 cannot be served"), ("H200", "fa3", "the fastest there is")]
)
def test_the_kernels_of_attention_are_named_or_why_there_are_none(
    run: Explain, model: Path, gpu: str, kernels: str | None, because: str
) -> None:
    asked = GPU + "  engine: {attention: Fa3}\n"
    told = run(asked, "-o", "json", "--node", f"gpu={gpu},count=1", "--model-config", str(model))[1]
    attention = json.loads(told)["attention"]
    assert attention["kernels"] == kernels
    assert because in attention["because"]


MINUTES = "Ready may take up to 40 min"
LOADS = "; most of that is the load of the weights"


@pytest.mark.parametrize(
    ("extra", "budget", "said"),
    [
        ("", Budget(10, 2400), f"{MINUTES}{LOADS}"),
        ("", Budget(1190, 2400), f"{MINUTES}: list fewer and smaller sizes in spec.graph.sizes.prefill"),
        (
            "  graph: {prefill: Disabled}\n",
            Budget(1190, 2400),
            f"{MINUTES}: list fewer and smaller sizes in spec.graph.sizes.decode, or set spec.graph.decode to Disabled",
        ),
        (
            "  engine: {startTimeout: 30m}\n",
            Budget(10, 2400),
            f"{MINUTES}, and the kubelet ends a start after 30 min{LOADS}: set spec.engine.startTimeout to 40m",
        ),
        (
            "  engine: {startTimeout: 30m}\n",
            Budget(10, 700_000),
            f"Ready may take up to 194.4 h, and the kubelet ends a start after 30 min{LOADS}",
        ),
    ],
)
def test_the_next_step_of_a_slow_start_is_one_that_helps(extra: str, budget: Budget, said: str) -> None:
    """Fewer sizes shorten no load, a phase without graphs has none, and the field takes 168 h at most."""
    (written,) = manifest.read("demo.yaml", (PLAIN + extra).encode())
    found = explanation.explain(written)
    slow = replace(found, there=replace(found.final, budget=budget)).slow
    assert slow is not None
    assert slow.startswith(said)


def test_a_start_that_takes_hours_is_a_warning_in_the_verdict(run: Explain) -> None:
    large = ("--model-config", str(ROOT / "benchmarks/shapes/qwen3-8b/config.json"))
    warned = (
        "Ready may take up to 3.8 h, and the kubelet ends a start after 66 min: set spec.engine.startTimeout to 229m"
    )
    code, told, _ = run(PLAIN, *large)
    assert code == 0
    first, *rest = told.split("Graphs: ")[0].splitlines()
    assert first == "can start"
    assert " ".join(" ".join(rest).split()).startswith(f"slow: {warned}, or list fewer and smaller sizes")
    assert json.loads(run(PLAIN, "-o", "json", *large)[1])["warnings"][0].startswith(warned)
    longer = json.loads(run(PLAIN + "  engine: {startTimeout: 229m}\n", "-o", "json", *large)[1])
    assert longer["warnings"][0].startswith("Ready may take up to 3.8 h: list fewer and smaller sizes")
    assert longer["warnings"][0].endswith("in spec.resources.limits[nvidia.com/gpu]: this service runs on a CPU")
    two = run(PLAIN + "---\n" + PLAIN.replace("demo", "other"), *large)[1].splitlines()
    assert two[1] == "  default/demo   can start; slow: up to 3.8 h"
    quick = json.loads(run(PLAIN + "  graph: {prefill: Disabled}\n", "-o", "json", *large)[1])
    assert quick["warnings"] == json.loads(run(PLAIN, "-o", "json")[1])["warnings"] == []


def test_a_verdict_says_what_it_does_not_rest_on_and_how_to_check_it(run: Explain, model: Path) -> None:
    checks = {
        (PLAIN, ()): "can start by its spec; not checked: the model. Check with --model-config FILE",
        (GPU, ()): "can start by its spec; not checked: the model and the GPU. Check with --model-config FILE --node "
        "gpu=KIND",
        (GPU, ("--node", "gpu=H200")): "can start by its spec; not checked: the model. Check with --model-config FILE",
        (GPU, ("--node", "gpu=H200", "--model-config", str(model))): "can start",
    }
    for (text, given), first in checks.items():
        assert run(text, *given)[1].splitlines()[0] == first
    assert json.loads(run(GPU, "-o", "json")[1])["unchecked"] == ["model", "node"]


def test_a_memory_error_says_how_much_is_enough_and_on_a_cpu_speaks_of_no_gpu(run: Explain, model: Path) -> None:
    given = ("--model-config", str(model))
    limited = PLAIN + "  resources: {limits: {memory: 513Mi}}\n"
    step = json.loads(run(limited, "-o", "json", *given)[1])["obstacles"][0]["step"]
    match = re.fullmatch(r"raise spec\.resources\.limits\.memory to at least (\d+Mi|\d+Gi)", step)
    assert match is not None
    assert run(limited.replace("513Mi", match[1]), *given)[0] == 0
    tiny = PLAIN + "  engine: {kvCacheMemory: 1Mi, maxModelLen: 32768}\n"
    step = json.loads(run(tiny, "-o", "json", *given)[1])["obstacles"][0]["step"]
    match = re.fullmatch(r"raise spec\.engine\.kvCacheMemory to at least (\d+Mi|\d+Gi)", step)
    assert match is not None
    assert run(tiny.replace("1Mi", match[1]), *given)[0] == 0


def test_a_container_without_room_for_any_weights_cannot_start(run: Explain) -> None:
    code, told, _ = run(PLAIN + "  resources: {limits: {memory: 50Mi}}\n")
    assert code == 4
    assert told.startswith("cannot start: WeightsTooLarge: the memory limit leaves nothing for weights: ")
    assert run(PLAIN + "  resources: {limits: {memory: 600Mi}}\n")[0] == 0


def test_a_request_above_its_limit_cannot_start(run: Explain) -> None:
    code, told, _ = run(PLAIN + '  resources: {requests: {cpu: "2"}, limits: {cpu: 1500m}}\n')
    assert code == 4
    assert " ".join(told.partition("Graphs that it would plan")[0].split()) == (
        "cannot start: SpecInvalid: spec.resources.requests.cpu: 2 is more than spec.resources.limits.cpu, 1500m; "
        "lower the request, or raise the limit"
    )
    assert run(PLAIN + '  resources: {requests: {cpu: "1.5"}, limits: {cpu: 1500m}}\n')[0] == 0


def test_without_lists_it_judges_by_those_of_the_chart(run: Explain) -> None:
    volume = PLAIN + "  podTemplate: {volumes: [{name: host, hostPath: {path: /data}}]}\n"
    code, told, _ = run(volume)
    assert code == 4
    assert told.startswith("cannot start: NotAllowed: ")
    assert run(volume, "--allowed", "{}")[0] == 0


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("suspend: true", "spec.suspend is true; set spec.suspend: false"),
        ("suspend: true\n  replicas: 3", "spec.suspend is true; set spec.suspend: false"),
        ("replicas: 0", "spec.replicas is 0; set spec.replicas to 1 or more"),
        (
            "suspend: true\n  replicas: 0",
            "spec.suspend is true and spec.replicas is 0; set spec.suspend: false and spec.replicas to 1 or more",
        ),
    ],
)
def test_a_service_without_pods_says_what_to_set_and_no_more(run: Explain, spec: str, said: str) -> None:
    code, told, _ = run(f"{PLAIN}  {spec}\n")
    verdict = " ".join(told.partition("Graphs: as requested.")[0].split())
    assert (code, verdict) == (4, f"cannot start: Suspended: no pod will start: {said}")
    assert "requested Auto → planned Full" in told, "the operator plans it"
    assert "Nothing below runs" not in told


@pytest.mark.parametrize(
    ("graph", "phase", "rule"),
    [
        ("{prefill: Full}", "prefill", "NotBuilt: Full refused"),
        ("{prefill: Full, onUnsupported: Fail}", "prefill", "NotBuilt: Full refused"),
        ("{decode: Full, onUnsupported: Fail, sizes: {decode: [99]}}", "decode", "LadderEmpty: Full refused"),
    ],
)
def test_a_phase_whose_policy_is_refused_has_no_plan(run: Explain, graph: str, phase: str, rule: str) -> None:
    text = PLAIN + f"  graph: {graph}\n"
    code, told, _ = run(text)
    assert code == 4
    assert f"Graphs: refused for {phase}; the lines below name the rules.\n" in told
    section = told.partition(f"{phase.upper():<14}")[2].partition("\n\n")[0]
    assert section.startswith("requested Full → refused\n")
    assert f"· {rule}" in section
    assert not [line for line in section.splitlines()[1:] if line[2:7].strip()], "nothing of it runs or costs"
    other = {"prefill": "decode", "decode": "prefill"}[phase]
    assert f"{other.upper():<14}requested Auto → would plan " in told
    assert "planned" not in told
    assert "Ready within" not in told
    found = json.loads(run(text, "-o", "json")[1])
    assert (found[phase]["planned"], found[phase]["sizes"], found[phase]["bytes"]) == (None, [], 0)
    assert found[other]["planned"] in ("Full", "Breakable")


def test_what_the_engine_refuses_is_planned_and_does_not_run(run: Explain, model: Path) -> None:
    text = GPU + "  engine: {maxModelLen: 1000000}\n"
    code, told, _ = run(text, "--model-config", str(model))
    assert code == 4
    assert "Nothing below runs. It is what would run if the pods could start.\n" in told
    assert "requested Auto → planned Full → would run Full\n" in told
    assert "expected" not in told


def test_what_is_said_of_both_phases_is_said_once(run: Explain) -> None:
    assert run(PLAIN)[1].count("NoCuda") == 1
    assert run(PLAIN + "  graph: {prefill: Disabled}\n")[1].count("NoCuda") == 1


# the KV cache near its limit


def test_a_context_that_no_kv_cache_holds_is_refused_with_auto_as_the_first_step(run: Explain, model: Path) -> None:
    spec = GPU + "  engine:\n    maxModelLen: {}\n"
    there = ("--node", "gpu=A10", "--model-config", str(model))
    code, told, _ = run(spec.format(40000), *there)
    words = " ".join(told.split())
    step = "leave spec.engine.maxModelLen out (Auto), or set spec.engine.kvCacheDtype: Fp8, or use a larger GPU"
    assert code == 4
    assert step in words
    fits = re.search(r"has room for (\d+) tokens", words)
    assert fits is not None
    assert run(spec.format(fits[1]), *there)[0] == 0
    assert run(spec.format(int(fits[1]) + 16), *there)[0] == 4
    assert run(GPU, *there)[0] == 0
    fp8 = run(spec.format(40960) + "    kvCacheDtype: Fp8\n    kvCacheMemory: 1Mi\n", *there)[1]
    assert "raise spec.engine.kvCacheMemory to at least" in " ".join(fp8.split())


def test_a_context_that_fits_without_graphs_alone_is_explained(run: Explain, model: Path) -> None:
    text = GPU + "  engine:\n    maxModelLen: 39440\n"
    code, told, _ = run(text, "--node", "gpu=A10", "--model-config", str(model))
    assert code == 0
    assert "less than one such context by this estimate, and the start may end with KvCacheTooSmall" in " ".join(
        told.split()
    )
    assert "0 such contexts" not in told


def test_a_service_that_can_sleep_says_what_that_frees(run: Explain) -> None:
    sleeps = GPU + "  engine: {sleep: true, sleepAfter: 10m}\n"
    shape = ROOT / "benchmarks" / "shapes" / "qwen3-8b" / "config.json"
    _, told, _ = run(sleeps, "--node", "gpu=H100", "--model-config", str(shape))
    frees = told[told.index("sleep  ") :].partition("attention")[0]
    assert " ".join(frees.split()) == (
        "sleep frees 15.3 GiB of weights and 54.5 GiB of KV cache on the device of each pod, while the annotation "
        "graphpod.dev/sleep is true, or after 10 min without a request"
    )
    assert "sleep  " not in run(GPU)[1]
