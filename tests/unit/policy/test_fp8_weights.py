"""FP8 weights before a start: what config.json says of them, the memory they take, and which GPUs they need."""

import json
from pathlib import Path
from typing import Any

import pytest

from graphpod_policy import (
    Device,
    EngineConfig,
    ExitCode,
    Features,
    GraphRequest,
    ModelConfig,
    ModelFacts,
    NodeFacts,
    Quantization,
    can_start,
    resolve,
)
from graphpod_policy.model.fp8_scheme import Fp8Scheme, Granularity, scheme_of
from graphpod_policy.start.footprint import weights_bytes

SHAPE: dict[str, Any] = json.loads(Path("benchmarks/shapes/qwen3-8b/config.json").read_text())
BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
LAYER_WEIGHTS = 36 * (4096 * 4096 * 2 + 2 * 4096 * 1024 + 3 * 4096 * 12288)
GIB = 1 << 30


def config(**features: Any) -> tuple[EngineConfig, Any]:
    asked = Features(device=Device.Cuda, gpus=1, **features)
    plan = resolve(asked, GraphRequest())
    return EngineConfig.of(asked, GraphRequest(), plan, model=ModelConfig("m", "/m"), dtype="bfloat16"), plan


@pytest.mark.parametrize("checkpoint", [False, True])
def test_each_fp8_weight_saves_the_second_byte(checkpoint: bool) -> None:
    plain, fp8 = ModelFacts.of(SHAPE), ModelFacts.of(SHAPE | {"quantization_config": BLOCKS})
    assert fp8.not_built is None
    assert (plain.fp8_weights, fp8.fp8_weights) == (0, LAYER_WEIGHTS)
    before = weights_bytes(config()[0], plain)
    after = weights_bytes(config()[0], fp8) if checkpoint else weights_bytes(
        config(quantization=Quantization.Fp8)[0], plain
    )  # fmt: skip
    assert before - after == LAYER_WEIGHTS


def test_weights_that_a_checkpoint_leaves_plain_count_as_such() -> None:
    left_out = BLOCKS | {"modules_to_not_convert": ["lm_head", *(f"model.layers.{at}" for at in range(9))]}
    assert ModelFacts.of(SHAPE | {"quantization_config": left_out}).fp8_weights == LAYER_WEIGHTS * 27 // 36


@pytest.mark.parametrize(("capability", "refused"), [((8, 0), True), ((8, 6), True), ((8, 9), False), ((9, 0), False)])
def test_a_gpu_that_multiplies_no_fp8_is_refused(capability: tuple[int, int], refused: bool) -> None:
    node = NodeFacts(1, capability, 80 * GIB, 79 * GIB)
    for features, model in (
        ({"quantization": Quantization.Fp8}, ModelFacts.of(SHAPE)),
        ({}, ModelFacts.of(SHAPE | {"quantization_config": BLOCKS})),
    ):
        obstacles = can_start(*config(**features), model, node)
        found = [one for one in obstacles if one.code is ExitCode.DtypeUnavailable]
        assert bool(found) == refused, obstacles
        assert all("multiplies no FP8" in one.what and "H100" in one.step for one in found)


@pytest.mark.parametrize(
    ("entry", "covered"),
    [
        ("model.layers.1.mlp.down_proj", False),
        ("model.layers.1", False),
        ("down_proj", False),
        ("re:.*down_proj", False),
        ("language_model.model.layers.1.mlp.down_proj", False),
        ("model.layers.11", True),
        ("re:down_proj", True),
        ("proj", True),
    ],
)
def test_a_list_of_what_stays_plain_names_modules_prefixes_and_patterns(entry: str, covered: bool) -> None:
    assert Fp8Scheme(Granularity.Channel, ignored=(entry,)).covers(1, "mlp.down_proj") is covered


def test_a_scheme_of_the_kv_cache_alone_leaves_weights_plain() -> None:
    assert scheme_of({"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8}}) is None
    assert scheme_of({"kv_cache_scheme": {"num_bits": 8}}) is None
