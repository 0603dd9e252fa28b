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
  parallelism: {tensor: RANKS}
  resources: {limits: {LIMITS}}
"""


def explained(ranks: int, limits: str, model: str | None, node: NodeFacts | None = None) -> Explanation:
    (found,) = manifest.read("FILE", SERVICE.replace("RANKS", str(ranks)).replace("LIMITS", limits).encode())
    facts = None if model is None else ModelFacts.of(json.loads((SHAPES / model / "config.json").read_bytes()))
    return explanation.explain(found, facts, node)


def test_each_gpu_has_its_share_of_weights_and_the_cache_of_its_heads() -> None:
    h100 = GPUS["H100"]
    one = explained(1, "nvidia.com/gpu: 1", "qwen3-8b", h100.node())
    two = explained(2, "nvidia.com/gpu: 2", "qwen3-8b", h100.node(2))
    assert one.memory is None
    assert two.memory is not None
    assert two.obstacles == ()
    assert (two.memory.ranks, two.memory.weights * 2) == (2, 2 * 8190427136)
    assert two.memory.kv is not None
    assert two.memory.weights + two.memory.graphs + two.memory.kv < h100.memory_bytes
    told = " ".join(explain_text.text(two).split())
    assert f"each of 2 GPUs: {size(two.memory.weights)} weights, " in told
    assert f"in all: {size(2 * two.memory.weights)} weights, " in told
    assert explanation.as_dict(two)["ranks"] == {
        "count": 2,
        "weightsBytes": two.memory.weights,
        "graphBytes": two.memory.graphs,
        "kvBytes": two.memory.kv,
    }
    assert explanation.as_dict(one)["ranks"] is None


def test_weights_that_fit_into_no_gpu_are_refused_for_each_of_them() -> None:
    small = replace(GPUS["T4"].node(2), free_bytes=7 << 30)
    (found,) = explained(2, "nvidia.com/gpu: 2", "qwen3-8b", small).obstacles
    assert found.reason == "WeightsTooLarge"
    assert "take 7.6 GiB in float16 for each of 2 ranks, and 7.0 GiB are free" in found.what


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
