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
import transformers
from torch import Tensor
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from graphpod_policy import ModelFacts, ModelUnreadable
from graphpod_policy.model.architectures import ARCHITECTURES
from graphpod_runtime.base.errors import ModelInvalid, ModelUnsupported
from graphpod_runtime.models.config_json import read_shape, shape_of
from graphpod_runtime.models.decoder import Decoder
from graphpod_runtime.models.decoder_targets import head_order
from graphpod_runtime.models.loader import load_model
from tests.unit.runtime.conftest import write_llama
from tests.unit.runtime.models.test_by_transformers import ROWS, written
from truth.families.drawn import drawn, respelt
from truth.families.tiny import tiny
from truth.families.trial import STEPS, tried
from truth.families.variants import VARIANTS

SAMPLE = random.Random(20).sample(sorted(VARIANTS), 3)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_of_configurations_gives_the_answers_of_transformers(name: str, tmp_path: Path) -> None:
    model_type, changes = VARIANTS[name]
    folder = tmp_path / model_type
    folder.mkdir()
    trial = tried(model_type, folder, **changes)
    assert (trial.outcome, trial.prefill, trial.decode) == ("Equal", "Breakable", "Full"), trial
    assert (trial.tokens, trial.fallbacks) == (ROWS * STEPS, 0)


@pytest.mark.parametrize("number", random.Random(27).sample(range(100_000), 4))
def test_configurations_by_chance_give_the_answers_of_transformers(number: int, tmp_path: Path) -> None:
    model_type, changes = drawn(number)
    folder = tmp_path / model_type
    folder.mkdir()
    trial = tried(model_type, folder, respelt=respelt(number), **changes)
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


NAMED = {"hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "vocab_size"}
"""Fields that every config.json has."""


def config_of(name: str, **changes: Any) -> dict[str, Any]:
    """The config.json of the small configuration of a type or variant, with `changes` that transformers may refuse."""
    model_type, of_variant = VARIANTS.get(name, (name, {}))
    architecture = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[model_type]
    return tiny(model_type, **of_variant).to_dict() | {"architectures": [architecture], **changes}


@pytest.mark.parametrize("architecture", [name for name in ARCHITECTURES if hasattr(transformers, name)])
def test_a_field_that_a_config_leaves_out_means_what_it_means_to_transformers(architecture: str) -> None:
    needed = {"num_experts_per_tok": 2} if architecture == "DeepseekV2ForCausalLM" else {}
    whole = json.loads(getattr(transformers, architecture).config_class(**needed).to_json_string(use_diff=False))
    whole["architectures"] = [architecture]
    text = whole.get("text_config", whole)
    wanted = shape_of(Path("config"), whole), ModelFacts.of(whole)
    for field in sorted(text.keys() - {"architectures", "model_type", *NAMED, *needed}):
        value = text.pop(field)
        assert (shape_of(Path("config"), whole), ModelFacts.of(whole)) == wanted, field
        text[field] = value


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("glm: a quarter of a head, no biases", {"head_dim": 20}, "5 elements of a head of 20 are not built"),
        ("glm: a quarter of a head, no biases", {"head_dim": 2}, "0 elements of a head of 2 are not built"),
        ("llama: linear", {"head_dim": 15}, "15 elements of a head of 15 are not built"),
        ("llama: longrope", {"head_dim": 32}, "short_factor of 8 numbers is not built for 16 rotary pairs"),
        ("granite", {"attention_multiplier": 0.0}, "attention_multiplier=0.0 is not built"),
        ("granitemoe", {"attention_multiplier": -0.7}, "attention_multiplier=-0.7 is not built"),
        ("mixtral", {"num_key_value_heads": 3}, "num_key_value_heads 3 does not divide num_attention_heads 4"),
        ("qwen2", {"layer_types": ["full_attention", "sliding_attention"]}, "where use_sliding_window is not true"),
    ],
)
def test_what_no_pass_can_compute_is_refused_by_name(name: str, changes: dict[str, Any], words: str) -> None:
    whole = config_of(name, **changes)
    assert words in (ModelFacts.of(whole).not_built or "")
    with pytest.raises(ModelUnsupported, match=words):
        shape_of(Path("config"), whole)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("granite", {"logits_scaling": 0}),
        ("granite", {"residual_multiplier": "half"}),
        ("cohere", {"logit_scale": [1]}),
        ("gemma2", {"query_pre_attn_scalar": 0}),
        ("llama", {"rms_norm_eps": "small"}),
        ("llama", {"rope_parameters": {"rope_type": "linear"}}),
        ("llama", {"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}),
        ("phi3", {"rope_parameters": {"rope_type": "longrope", "long_factor": [1.0]}}),
        ("smollm3", {"no_rope_layers": [1]}),
        ("mistral", {"sliding_window": "wide"}),
    ],
)
def test_a_number_that_is_of_no_use_to_the_engine_is_none_to_explain(name: str, changes: dict[str, Any]) -> None:
    whole = config_of(name, **changes)
    with pytest.raises(ModelInvalid):
        shape_of(Path("config"), whole)
    with pytest.raises(ModelUnreadable):
        ModelFacts.of(whole)


def test_a_config_without_architectures_is_of_that_of_its_type() -> None:
    whole = config_of("qwen3")
    named = shape_of(Path("config"), whole)
    del whole["architectures"]
    assert shape_of(Path("config"), whole) == named


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
