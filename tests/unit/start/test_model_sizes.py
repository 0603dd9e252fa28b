"""Weights that a published config.json stands for, against the number on the model's card."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from graphpod_policy import ModelFacts

MODELS: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("models.yaml").read_text())
PUBLISHED = [name for name, row in MODELS.items() if "billions" in row]


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_config_gives_the_weights_of_the_models_card(name: str) -> None:
    assert ModelFacts.of(MODELS[name]["config"]).params == pytest.approx(MODELS[name]["billions"] * 1e9, rel=0.015)


def test_a_mixture_of_experts_is_as_large_as_its_files() -> None:
    assert 2 * ModelFacts.of(MODELS["Qwen3-30B-A3B"]["config"]).params / 2**30 == pytest.approx(57, abs=0.5)


UNKNOWN = {"architectures": ["OneMoreMoeForCausalLM"]}
"""An architecture that the engine does not know: others have its fields."""


@pytest.mark.parametrize(
    ("change", "layers"),
    [
        ({"decoder_sparse_step": 2}, 24),
        ({"mlp_only_layers": [0, 1, 5]}, 45),
        ({"first_k_dense_replace": 3, **UNKNOWN}, 45),
        ({"moe_layer_freq": 4, **UNKNOWN}, 12),
        ({"moe_layer_freq": 4}, 48),
        ({"mlp_only_layers": list(range(48))}, None),
        ({"num_experts": 0}, None),
    ],
)
def test_layers_without_experts_are_dense(change: dict[str, Any], layers: int | None) -> None:
    config = MODELS["Qwen3-30B-A3B"]["config"]
    whole, part = ModelFacts.of(config), ModelFacts.of({**config, **change})
    assert part.expert_layers == layers
    lost = (48 - (layers or 0)) * 3 * 2048 * (128 * 768 - 6144)
    assert whole.params - part.params == lost
