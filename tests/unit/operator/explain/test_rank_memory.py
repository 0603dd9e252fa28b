"""What `explain` says of a service of several ranks: the memory of each, and of all together."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from graphpod_operator.explain import explanation, manifest
from graphpod_operator.explain import text as explain_text
from graphpod_operator.explain.explanation import Explanation
from graphpod_policy import ModelFacts, NodeFacts
from graphpod_policy.node import GPUS, PROCESS_BYTES, RANK_BYTES
from graphpod_policy.units import size

ROOT = Path(__file__).resolve().parents[4]
SHAPES = ROOT / "benchmarks/shapes"
SERVICE = """apiVersion: graphpod.dev/v1alpha1
kind: InferenceService
metadata: {name: demo}
spec:
  model: {uri: pvc://weights/model}
  parallelism: {tensor: RANKS, pipeline: STAGES}
  resources: {limits: {LIMITS}}
"""


def explained(
    ranks: int, limits: str, model: str | None, node: NodeFacts | None = None, stages: int = 1
) -> Explanation:
    text = SERVICE.replace("RANKS", str(ranks)).replace("STAGES", str(stages)).replace("LIMITS", limits)
    (found,) = manifest.read("FILE", text.encode())
    facts = None if model is None else ModelFacts.of(json.loads((SHAPES / model / "config.json").read_bytes()))
    return explanation.explain(found, facts, node)


def test_each_gpu_has_its_share_of_weights_and_the_cache_of_its_heads() -> None:
    h100 = GPUS["H100"]
    one = explained(1, "nvidia.com/gpu: 1", "qwen3-8b", h100.node())
    two = explained(2, "nvidia.com/gpu: 2", "qwen3-8b", h100.node(2))
    assert one.memory is None
    assert two.memory is not None
    assert two.obstacles == ()
    (each,) = two.memory.stages
    assert (two.memory.ranks, each.weights * 2) == (2, 2 * 8190427136)
    assert each.kv is not None
    assert each.weights + each.graphs + each.kv < h100.memory_bytes
    told = " ".join(explain_text.text(two).split())
    assert f"each of 2 GPUs: {size(each.weights)} weights, " in told
    assert f"in all: {size(2 * each.weights)} weights, " in told
    assert explanation.as_dict(two)["ranks"] == {
        "count": 2,
        "weightsBytes": each.weights,
        "graphBytes": each.graphs,
        "kvBytes": each.kv,
    }
    assert explanation.as_dict(one)["ranks"] is None


def test_each_stage_has_its_layers_and_the_first_and_the_last_a_table_of_the_vocabulary() -> None:
    """36 layers over 5 stages: 8, 7, 7, 7, 7. The KV cache of all has as many pages."""
    found = explained(2, "nvidia.com/gpu: 10", "qwen3-8b", GPUS["H100"].node(10), stages=5)
    assert found.obstacles == ()
    assert found.memory is not None
    first, second, third, fourth, last = found.memory.stages
    assert second == third == fourth
    table = 151936 * 4096 * 2 // 2
    assert last.weights - second.weights == table
    assert (first.weights - table) * 7 == second.weights * 8
    assert (first.kv or 0) * 7 == (second.kv or 0) * 8
    assert second.kv == last.kv
    told = " ".join(explain_text.text(found).split())
    assert f"stage 1 of 5 (8 layers), each of 2 GPUs: {size(first.weights)} weights" in told
    assert f"stages 2 to 4 of 5 (7 layers each), each of 6 GPUs: {size(second.weights)} weights" in told
    assert f"stage 5 of 5 (7 layers), each of 2 GPUs: {size(last.weights)} weights" in told
    assert f"in all: {size(16381470720)} weights, " in told
    ranks = explanation.as_dict(found)["ranks"]
    assert (ranks["count"], ranks["weightsBytes"]) == (10, first.weights)
    assert [stage["layers"] for stage in ranks["stages"].values()] == [8, 7, 7, 7, 7]
    assert list(ranks["stages"]) == ["1", "2", "3", "4", "5"]


def test_more_stages_than_layers_are_refused_with_both_numbers_and_have_no_memory() -> None:
    found = explained(1, "nvidia.com/gpu: 37", "qwen3-8b", GPUS["H100"].node(37), stages=37)
    assert "pipeline 37 has more stages than the model has layers (36)" in "; ".join(map(str, found.obstacles))
    assert found.memory is None


def test_weights_that_fit_into_no_gpu_are_refused_for_each_of_them() -> None:
    small = replace(GPUS["T4"].node(2), free_bytes=7 << 30)
    (found,) = explained(2, "nvidia.com/gpu: 2", "qwen3-8b", small).obstacles
    assert found.reason == "WeightsTooLarge"
    assert "take 7.6 GiB in float16 for each of 2 ranks, and 7.0 GiB are free" in found.what


@pytest.mark.parametrize(
    ("model", "gpu", "stages", "ranks"),
    [("qwen3-8b", "T4", 1, 2), ("qwen3-30b-a3b", "L4", 1, 4), ("qwen3-30b-a3b", "T4", 2, 4)],
)
def test_weights_that_are_too_large_for_a_gpu_fit_into_as_many_as_the_step_says(
    model: str, gpu: str, stages: int, ranks: int
) -> None:
    (found,) = explained(1, f"nvidia.com/gpu: {stages}", model, GPUS[gpu].node(stages), stages).obstacles
    gpus = ranks * stages
    assert found.reason == "WeightsTooLarge"
    assert found.step == (f"use a larger GPU, a smaller model, or {gpus} GPUs with spec.parallelism.tensor: {ranks}")
    assert explained(ranks, f"nvidia.com/gpu: {gpus}", model, GPUS[gpu].node(gpus), stages).obstacles == ()


def test_more_gpus_are_no_step_for_what_ranks_do_not_have() -> None:
    (text,) = manifest.read(
        "FILE",
        SERVICE.replace("{tensor: RANKS, pipeline: STAGES}", "{}")
        .replace("LIMITS", "nvidia.com/gpu: 1")
        .replace("spec:", "spec:\n  engine: {sleep: true}")
        .encode(),
    )
    facts = ModelFacts.of(json.loads((SHAPES / "qwen3-8b/config.json").read_bytes()))
    found = explanation.explain(text, facts, GPUS["T4"].node(1)).obstacles
    assert [one.step for one in found if one.reason == "WeightsTooLarge"] == ["use a larger GPU or a smaller model"]


def test_ranks_on_a_cpu_share_the_memory_of_their_container() -> None:
    one, four = (explained(ranks, "memory: 8Gi", "qwen3-0.6b") for ranks in (1, 4))
    assert one.obstacles == four.obstacles == ()
    assert "It makes nothing faster" in four.notes[0]
    assert not any("makes nothing faster" in note for note in one.notes)
    (found,) = explained(4, "memory: 2Gi", "qwen3-0.6b").obstacles
    assert f"{size(((2 << 30) - PROCESS_BYTES - 3 * RANK_BYTES) // 4)} are free" in found.what
    needed = int(found.step.removeprefix("raise spec.resources.limits.memory to at least ").removesuffix("Mi"))
    assert not explained(4, f"memory: {needed}Mi", "qwen3-0.6b").obstacles


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        (3, "tensor 3 does not divide 32 attention heads"),
        (16, ""),
        (64, "tensor 64 does not divide 32 attention heads"),
    ],
)
def test_what_does_not_divide_is_refused_with_both_numbers(ranks: int, words: str) -> None:
    """16 ranks share 8 key-value heads."""
    told = "; ".join(map(str, explained(ranks, f"nvidia.com/gpu: {ranks}", "qwen3-8b").obstacles))
    assert words in told
    assert bool(told) == bool(words)


def test_without_the_model_there_is_no_line_of_memory() -> None:
    assert explained(2, "nvidia.com/gpu: 2", None, GPUS["H100"].node(2)).memory is None
