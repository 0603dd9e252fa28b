"""Small configurations other than a type's own: what a config.json may ask for, by what is varied.

Each is a change of the small configuration of its type. Together they have other ratios of heads, odd widths, tied and
untied heads, biases, every type of rotary positions, windows, caps and factors.
"""

from collections.abc import Mapping
from typing import Any

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
    "rope_theta": 500000.0,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 40, "rope_theta": 10000.0}
SHARP_YARN = YARN | {"mscale": 0.7, "mscale_all_dim": 0.9, "beta_fast": 16.0, "truncate": False}
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
DYNAMIC = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}
MULTIPLIERS = {
    "embedding_multiplier": 6.0,
    "attention_multiplier": 0.2,
    "residual_multiplier": 0.3,
    "logits_scaling": 3.0,
}
FULL, SLIDING = "full_attention", "sliding_attention"


def long(pairs: int, original: int = 140, **more: Any) -> dict[str, Any]:
    """A rotation of `pairs` pairs of the type longrope, for texts of `original` tokens."""
    factors = [1.0 + 0.25 * pair for pair in range(pairs)]
    return {
        "rope_type": "longrope",
        "short_factor": factors,
        "long_factor": [2 * factor for factor in factors],
        "rope_theta": 10000.0,
        "original_max_position_embeddings": original,
        **more,
    }


VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "llama: one key head, biases": (
        "llama",
        {"num_attention_heads": 8, "num_key_value_heads": 1, "attention_bias": True, "mlp_bias": True},
    ),
    "llama: wide odd heads, llama3": ("llama", {"head_dim": 24, "rope_parameters": LLAMA3}),
    "llama: yarn, tied": ("llama", {"rope_parameters": SHARP_YARN, "tie_word_embeddings": True}),
    "llama: linear": ("llama", {"num_attention_heads": 16, "num_key_value_heads": 8, "rope_parameters": LINEAR}),
    "llama: dynamic": ("llama", {"rope_parameters": DYNAMIC}),
    "llama: longrope": ("llama", {"rope_parameters": long(8, factor=4.0)}),
    "mistral: no window, odd heads": ("mistral", {"sliding_window": None, "head_dim": 20}),
    "mistral: window of 5, yarn": ("mistral", {"sliding_window": 5, "rope_parameters": YARN}),
    "qwen2: windows above, untied": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1, "tie_word_embeddings": False},
    ),
    "qwen2: yarn, tied": ("qwen2", {"rope_parameters": YARN, "tie_word_embeddings": True}),
    "qwen3: biases, one key head": ("qwen3", {"attention_bias": True, "num_key_value_heads": 1, "head_dim": 40}),
    "qwen3: windows by layer": (
        "qwen3",
        {"use_sliding_window": True, "sliding_window": 9, "layer_types": [SLIDING, FULL]},
    ),
    "gemma: one key head, biases": ("gemma", {"num_key_value_heads": 1, "attention_bias": True, "head_dim": 24}),
    "gemma: the older name of its gate": ("gemma", {"hidden_act": "gelu"}),
    "gemma2: small caps": (
        "gemma2",
        {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0, "query_pre_attn_scalar": 24},
    ),
    "gemma2: no caps, window of 5": (
        "gemma2",
        {"attn_logit_softcapping": None, "final_logit_softcapping": None, "sliding_window": 5},
    ),
    "gemma3_text: linear, window of 6": (
        "gemma3_text",
        {
            "sliding_window": 6,
            "rope_parameters": {FULL: LINEAR | {"rope_theta": 1e6}, SLIDING: {"rope_theta": 1e4}},
        },
    ),
    "phi3: part of a head, longrope": (
        "phi3",
        {"rope_parameters": long(6, partial_rotary_factor=0.75), "original_max_position_embeddings": 140},
    ),
    "phi3: window of 9, tied, one key head": (
        "phi3",
        {"sliding_window": 9, "tie_word_embeddings": True, "num_key_value_heads": 1},
    ),
    "granite: factors, biases": ("granite", MULTIPLIERS | {"attention_bias": True, "mlp_bias": True}),
    "granite: factors, tied, yarn": ("granite", MULTIPLIERS | {"tie_word_embeddings": True, "rope_parameters": YARN}),
    "olmo2: biases, one key head": ("olmo2", {"attention_bias": True, "num_key_value_heads": 1}),
    "olmo2: all key heads, tied": ("olmo2", {"num_key_value_heads": 4, "tie_word_embeddings": True}),
    "smollm3: the other layer unrotated, biases": (
        "smollm3",
        {"no_rope_layers": [0, 1], "attention_bias": True, "mlp_bias": True},
    ),
    "smollm3: windows, yarn": (
        "smollm3",
        {
            "no_rope_layers": [1, 0],
            "use_sliding_window": True,
            "sliding_window": 6,
            "layer_types": [FULL, SLIDING],
            "rope_parameters": YARN,
            "tie_word_embeddings": False,
        },
    ),
    "starcoder2: no biases, one key head": ("starcoder2", {"use_bias": False, "num_key_value_heads": 1}),
    "starcoder2: window of 6, untied": ("starcoder2", {"sliding_window": 6, "tie_word_embeddings": False}),
    "glm: a quarter of a head, no biases": (
        "glm",
        {
            "head_dim": 32,
            "attention_bias": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25},
        },
    ),
    "glm4: whole heads, one key head": (
        "glm4",
        {
            "num_key_value_heads": 1,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0},
        },
    ),
    "cohere: normalised heads, biases": (
        "cohere",
        {"use_qk_norm": True, "attention_bias": True, "logit_scale": 0.3, "num_key_value_heads": 1},
    ),
    "cohere: untied, linear": (
        "cohere",
        {"tie_word_embeddings": False, "rope_parameters": LINEAR, "num_key_value_heads": 4},
    ),
    "cohere2: window of 7, biases": (
        "cohere2",
        {"sliding_window": 7, "attention_bias": True, "layer_types": [FULL, SLIDING], "logit_scale": 1.5},
    ),
    "internlm3: biases, dynamic": (
        "internlm3",
        {"attention_bias": True, "mlp_bias": True, "rope_parameters": DYNAMIC},
    ),
    "gpt2: scaled by layer, untied": (
        "gpt2",
        {"scale_attn_by_inverse_layer_idx": True, "tie_word_embeddings": False},
    ),
    "gpt_neox: one after the other": ("gpt_neox", {"use_parallel_residual": False, "attention_bias": False}),
    "opt: norms behind": ("opt", {"do_layer_norm_before": False, "word_embed_proj_dim": 32}),
    "stablelm: parallel, normalised heads": (
        "stablelm",
        {"use_parallel_residual": True, "qk_layernorm": True, "use_qkv_bias": True},
    ),
    "olmo: cut values": ("olmo", {"clip_qkv": 0.5, "num_key_value_heads": 1}),
    "olmo3: yarn, window of 6": ("olmo3", {"sliding_window": 6}),
    "olmoe: cut values, one expert": ("olmoe", {"clip_qkv": 0.5, "num_experts_per_tok": 1}),
    "exaone4: window of 6": ("exaone4", {"sliding_window": 6, "num_key_value_heads": 1}),
    "phi: normalised heads, one key head": ("phi", {"qk_layernorm": True, "num_key_value_heads": 1}),
    "nemotron: part of a head": (
        "nemotron",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25}},
    ),
    "persimmon: plain heads": ("persimmon", {"qk_layernorm": False}),
    "seed_oss: no biases": ("seed_oss", {"attention_bias": False, "attention_out_bias": True}),
    "apertus: all key heads": ("apertus", {"num_key_value_heads": 4, "attention_bias": True}),
    "arcee: biases, yarn": ("arcee", {"attention_bias": True, "mlp_bias": True, "rope_parameters": YARN}),
    "helium: biases": ("helium", {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 1}),
    "ernie4_5: biases": ("ernie4_5", {"use_bias": True, "num_key_value_heads": 1}),
    "minicpm3: longrope": ("minicpm3", {"rope_parameters": long(4, factor=1.0)}),
    "deepseek_v3: groups, plain queries": (
        "deepseek_v3",
        {"q_lora_rank": None, "n_group": 2, "topk_group": 1, "rope_parameters": YARN | {"mscale_all_dim": 1.0}},
    ),
    "deepseek_v2: groups": (
        "deepseek_v2",
        {"topk_method": "group_limited_greedy", "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2},
    ),
    "deepseek_v2: queries of the input, sharper yarn": (
        "deepseek_v2",
        {"q_lora_rank": None, "rope_parameters": YARN | {"mscale": 0.7, "mscale_all_dim": 0.9}},
    ),
    "deepseek_v2: dense layers, biases, tied": (
        "deepseek_v2",
        {"first_k_dense_replace": 2, "attention_bias": True, "tie_word_embeddings": True, "v_head_dim": 20},
    ),
    "mixtral: one expert, window of 6": ("mixtral", {"num_experts_per_tok": 1, "sliding_window": 6}),
    "qwen2_moe: a dense layer, windows": (
        "qwen2_moe",
        {
            "mlp_only_layers": [0],
            "use_sliding_window": True,
            "sliding_window": 10,
            "max_window_layers": 1,
            "layer_types": None,
        },
    ),
    "qwen3_moe: all experts": ("qwen3_moe", {"num_experts_per_tok": 4, "norm_topk_prob": True, "head_dim": 24}),
    "qwen2_moe: every other layer, a wide shared expert": (
        "qwen2_moe",
        {"decoder_sparse_step": 2, "norm_topk_prob": True, "shared_expert_intermediate_size": 80},
    ),
    "qwen3_moe: windows, one expert": (
        "qwen3_moe",
        {"num_experts_per_tok": 1, "use_sliding_window": True, "sliding_window": 8, "attention_bias": True},
    ),
    "granitemoe: factors": ("granitemoe", MULTIPLIERS),
    "granitemoe: biases, tied": ("granitemoe", {"attention_bias": True, "tie_word_embeddings": True}),
    "gpt_oss: window of 6": ("gpt_oss", {"sliding_window": 6, "num_key_value_heads": 1}),
    "glm4_moe: normalised heads, groups": ("glm4_moe", {"use_qk_norm": True, "n_group": 2, "topk_group": 1}),
    "ministral: window of 6, llama3": ("ministral", {"sliding_window": 6, "rope_parameters": LLAMA3}),
    "diffllama: biases": ("diffllama", {"attention_bias": True}),
    "hunyuan_v1_dense: odd heads": ("hunyuan_v1_dense", {"head_dim": 24, "attention_bias": True}),
}
"""By a name: type of the model, and the changes."""
