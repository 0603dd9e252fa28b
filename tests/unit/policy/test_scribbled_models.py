"""A model's config.json, whose author may write anything: it is a model's facts, or it is refused by one error."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from graphpod_policy import ModelFacts, ModelUnreadable
from graphpod_policy.enums import SpeculativeMethod
from tests.scribbles import put, read_or, scribbled
from tests.unit.policy.test_facts import SMOLLM2, UNKNOWN
from tests.unit.policy.test_families import STABLELM

HEADS = (SpeculativeMethod.Eagle, SpeculativeMethod.Eagle3, SpeculativeMethod.Mtp)
SHAPES = Path(__file__).parents[3] / "benchmarks/shapes"
LONGROPE: dict[str, Any] = {
    "rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [1.0] * 4, "factor": 2.0,
    "attention_factor": 1.0,
    "original_max_position_embeddings": 4096, "partial_rotary_factor": 1.0,
}  # fmt: skip
YARN: dict[str, Any] = {
    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1,
    "mscale": 1.0, "mscale_all_dim": 1.0, "truncate": True,
}  # fmt: skip
COMPRESSED: dict[str, Any] = {
    "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head", "re:.*gate"],
    "config_groups": {"group_0": {
        "targets": ["Linear"],
        "weights": {"type": "float", "num_bits": 8, "symmetric": True, "dynamic": False, "strategy": "channel"},
        "input_activations": {"type": "float", "num_bits": 8, "symmetric": True, "dynamic": True, "strategy": "token"},
    }},
}  # fmt: skip
BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}
LATENT: dict[str, Any] = {
    **SMOLLM2, "architectures": ["DeepseekV2ForCausalLM"], "num_key_value_heads": 9, "max_position_embeddings": 4096,
    "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "q_lora_rank": None,
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "n_shared_experts": 1, "n_group": 2,
    "topk_group": 1, "topk_method": "group_limited_greedy", "first_k_dense_replace": 1, "routed_scaling_factor": 1.0,
    "norm_topk_prob": False, "rms_norm_eps": 1e-6, "rope_scaling": YARN,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    **{folder.name: json.loads((folder / "config.json").read_bytes()) for folder in sorted(SHAPES.iterdir())},
    "llama": {**SMOLLM2, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "eos_token_id": [2]},
    "phi3": {**SMOLLM2, "architectures": ["Phi3ForCausalLM"], "max_position_embeddings": 8192, "rope_scaling": LONGROPE,
             "rms_norm_eps": 1e-5, "sliding_window": 4096, "original_max_position_embeddings": 4096},
    "compressed": {**SMOLLM2, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "quantization_config": COMPRESSED},
    "blocks": {**SMOLLM2, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "quantization_config": BLOCKS},
    "latent": LATENT,
    "unknown": {**SMOLLM2, **UNKNOWN, "num_experts": 8, "mlp_only_layers": [1], "decoder_sparse_step": 2},
    "family": {**STABLELM, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "quantization_config": AWQ},
    "images": {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": SMOLLM2, "vision_config": {}},
    "eagle3": {**SMOLLM2, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32000},
}  # fmt: skip
LAYERS = [put(CONFIGS[name], ("num_hidden_layers",), 1 << 63) for name in ("llama", "unknown", "family", "latent")]


def is_read_or_refused(config: Any) -> None:
    for read in (ModelFacts.of, *(lambda one, how=method: ModelFacts.of_head(how, one) for method in HEADS)):
        with read_or(ModelUnreadable):
            facts = read(config)
            assert facts.params >= 0
            assert facts.served.layers >= 1


@given(scribbled(*CONFIGS.values()).filter(lambda config: isinstance(config, dict)))
@example(put(CONFIGS["llama"], ("max_position_embeddings",), float("inf")))
@example({"architectures": [[]]})
def test_any_field_of_a_config_may_hold_anything(config: Any) -> None:
    is_read_or_refused(config)


@given(st.sampled_from(sorted(CONFIGS)), st.data())
def test_any_field_of_a_config_may_be_lost(name: str, data: st.DataObject) -> None:
    config = CONFIGS[name]
    lost = data.draw(st.sets(st.sampled_from(sorted(config)), max_size=3))
    is_read_or_refused({field: value for field, value in config.items() if field not in lost})


@pytest.mark.parametrize("config", LAYERS, ids=lambda config: config["architectures"][0])
def test_more_layers_than_any_model_has_are_no_model(config: dict[str, Any]) -> None:
    with pytest.raises(ModelUnreadable, match="layers: expected a number of at most 4096"):
        ModelFacts.of(config)
