"""Configurations that nobody chose for us: a seeded sample of those that `make families` runs, and weights whose rows
stand in another order than in a checkpoint."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from graphpod_policy import ModelFacts
from graphpod_runtime.models.config_json import read_shape
from graphpod_runtime.models.decoder import Decoder
from graphpod_runtime.models.decoder_targets import head_order
from graphpod_runtime.models.loader import load_model
from tests.unit.runtime.conftest import write_llama
from tests.unit.runtime.models.test_by_transformers import ROWS, written
from truth.families.tiny import tiny
from truth.families.trial import STEPS, tried
from truth.families.variants import VARIANTS

SAMPLE = random.Random(20).sample(sorted(VARIANTS), 5)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_of_configurations_gives_the_answers_of_transformers(name: str, tmp_path: Path) -> None:
    model_type, changes = VARIANTS[name]
    folder = tmp_path / model_type
    folder.mkdir()
    trial = tried(model_type, folder, **changes)
    assert (trial.outcome, trial.prefill, trial.decode) == ("Equal", "Breakable", "Full"), trial
    assert (trial.tokens, trial.fallbacks) == (ROWS * STEPS, 0)


def logits(folder: Path, *, quantize: bool = False) -> Tensor:
    """Of a text, by our layers and torch's attention."""
    model = load_model(folder, torch.float32, 64, quantize=quantize)
    assert isinstance(model, Decoder)
    tokens = torch.arange(3, 43)

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows = (each.transpose(0, 1)[None] for each in (q, k, v))
        scale = model.shape.softmax_scale
        attended = functional.scaled_dot_product_attention(*rows, is_causal=True, scale=scale, enable_gqa=True)
        return attended[0].transpose(0, 1).flatten(1)

    with torch.no_grad():
        return model.head(model.body(model.embed(tokens), torch.arange(40), attend))


@pytest.mark.parametrize("name", ["phi3: part of a head, longrope", "cohere: normalised heads, biases", "starcoder2"])
def test_rows_in_another_order_are_quantized_as_they_are_loaded(name: str, tmp_path: Path) -> None:
    model_type, changes = VARIANTS.get(name, (name, {}))
    folder = written(tmp_path, model_type, **changes)
    plain = logits(folder)
    apart = (logits(folder, quantize=True) - plain).norm() / plain.norm()
    assert 1e-4 < apart < 0.1


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("glm: a quarter of a head, no biases", {"head_dim": 20}, "5 elements of a head of 20"),
        ("llama: linear", {"head_dim": 15}, "15 elements of a head of 15"),
    ],
)
def test_half_a_pair_of_rotary_positions_is_refused_by_name(name: str, changes: dict[str, Any], words: str) -> None:
    model_type, of_variant = VARIANTS[name]
    whole = tiny(model_type, **of_variant).to_dict() | {"architectures": [f"{model_type.capitalize()}ForCausalLM"]}
    missing = ModelFacts.of(whole | changes).not_built
    assert missing is not None
    assert f"rotary positions of {words} are not built" in missing


def test_fp8_checkpoints_in_another_order_are_refused_by_name(tmp_path: Path) -> None:
    whole = json.loads((written(tmp_path, "glm4") / "config.json").read_bytes())
    refused = ModelFacts.of(whole | {"quantization_config": {"quant_method": "fp8"}}).not_built
    assert refused is not None
    assert "quantization_config is not built for Glm4ForCausalLM" in refused


@pytest.mark.parametrize(
    ("changes", "order"),
    [
        ({}, (0, 1, 2, 3, 4, 5, 6, 7)),
        ({"interleaved": True}, (0, 2, 4, 6, 1, 3, 5, 7)),
        ({"rotated": 4}, (0, 1, 4, 5, 2, 3, 6, 7)),
        ({"rotated": 4, "interleaved": True}, (0, 2, 4, 5, 1, 3, 6, 7)),
    ],
)
def test_pairs_that_turn_are_half_a_head_apart(changes: dict[str, Any], order: tuple[int, ...], tmp_path: Path) -> None:
    shape = replace(read_shape(write_llama(tmp_path)), head_dim=8, **changes)
    assert head_order(shape) == order


def test_an_internlm3_as_its_authors_wrote_it_is_a_llama(tmp_path: Path) -> None:
    llama = read_shape(write_llama(tmp_path, attention_bias=True, mlp_bias=True))
    path = tmp_path / "config.json"
    config = json.loads(path.read_bytes()) | {"architectures": ["InternLM3ForCausalLM"], "model_type": "internlm3"}
    config |= {"qkv_bias": config.pop("attention_bias"), "bias": config.pop("mlp_bias")}
    path.write_text(json.dumps(config | {"auto_map": {"AutoModelForCausalLM": "modeling_internlm3.InternLM3"}}))
    shape = read_shape(tmp_path)
    assert (shape.qkv_bias, shape.out_bias, shape.mlp_bias) == (llama.qkv_bias, llama.out_bias, llama.mlp_bias)
    assert load_model(tmp_path, torch.float32, 64).shape == shape
