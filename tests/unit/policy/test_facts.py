"""Facts of a model, as config.json tells them."""

from typing import Any

import pytest

from graphpod_policy import ModelFacts, ModelUnreadable

SMOLLM2: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 30, "hidden_size": 576,
    "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
}  # fmt: skip

UNKNOWN = {"architectures": ["OneMoreForCausalLM"]}
"""An architecture that the engine does not know."""


def test_a_config_tells_the_shape() -> None:
    facts = ModelFacts.of(SMOLLM2)
    assert facts == ModelFacts("LlamaForCausalLM", 30, 576, 1536, 9, 3, 64, 49152, max_position=2048)
    assert not facts.multimodal
    assert not facts.experts


def test_what_is_not_said_follows_from_the_rest() -> None:
    config = {key: value for key, value in SMOLLM2.items() if key not in ("num_key_value_heads", "architectures")}
    facts = ModelFacts.of(config)
    assert (facts.kv_heads, facts.head_dim, facts.architecture) == (9, 64, "LlamaForCausalLM")
    assert ModelFacts.of({**SMOLLM2, "head_dim": 128}).head_dim == 128
    assert ModelFacts.of({key: value for key, value in config.items() if key != "model_type"}).architecture == ""
    assert isinstance(facts.head_dim, int)


@pytest.mark.parametrize("key", ["num_experts", "n_routed_experts"])
def test_experts_count_as_weights(key: str) -> None:
    unknown = SMOLLM2 | UNKNOWN
    dense, sparse = ModelFacts.of(unknown), ModelFacts.of({**unknown, key: 8})
    assert sparse.experts == 8
    assert sparse.params - dense.params == 7 * 30 * 3 * 576 * 1536
    assert ModelFacts.of({**unknown, key: 0}).params == dense.params
    assert not ModelFacts.of({**SMOLLM2, key: 8}).experts  # Llama has none, whatever a field says


def test_parameters_are_near_the_models_name() -> None:
    """135 million, the embedding counted twice; 8.2 billion."""
    assert ModelFacts.of(SMOLLM2).params == pytest.approx(135e6, rel=0.25)
    assert ModelFacts("Qwen3ForCausalLM", 36, 4096, 12288, 32, 8, 128, 151936).params == pytest.approx(8.2e9, rel=0.02)
    assert ModelFacts("X", 2, 8, 16, 4, 2, 3, 10).params == 2 * (8 * 3 * 2 * 6 + 3 * 8 * 16) + 2 * 10 * 8


@pytest.mark.parametrize("part", ["vision_config", "audio_config"])
def test_a_multimodal_model_has_its_shape_in_text_config(part: str) -> None:
    facts = ModelFacts.of({"architectures": ["Gemma3ForConditionalGeneration"], "text_config": SMOLLM2, part: {}})
    assert (facts.layers, facts.multimodal, facts.architecture) == (30, True, "Gemma3ForConditionalGeneration")


@pytest.mark.parametrize(
    ("architecture", "latent", "hybrid", "diffusion"),
    [
        ("LlamaForCausalLM", False, False, False),
        ("DeepseekV3ForCausalLM", True, False, False),
        ("NemotronHForCausalLM", False, True, False),
        ("LLaDAModelLM", False, False, True),
    ],
)
def test_an_architecture_tells_its_kind(architecture: str, latent: bool, hybrid: bool, diffusion: bool) -> None:
    facts = ModelFacts.of({**SMOLLM2, "architectures": [architecture]})
    assert (facts.latent_attention, facts.hybrid, facts.diffusion) == (latent, hybrid, diffusion)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, "hidden_size: expected a number of at least 1, found None"),
        ({"num_hidden_layers": "30"}, "num_hidden_layers: expected a number of at least 1, found '30'"),
        ({"num_attention_heads": 0}, "num_attention_heads: expected a number of at least 1, found 0"),
        ({"vocab_size": True}, "vocab_size: expected a number of at least 1, found True"),
        ({"num_experts": -1, **UNKNOWN}, "num_experts: expected a number of at least 0, found -1"),
        ({"text_config": 5}, "text_config: expected an object, found 5"),
        ({"architectures": "Llama"}, "architectures: expected a list of names, found 'Llama'"),
    ],
)
def test_a_config_that_is_none_names_its_field(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelUnreadable, match=f"^{message}$"):
        ModelFacts.of({**SMOLLM2, **change})
