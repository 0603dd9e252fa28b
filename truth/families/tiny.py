"""A small configuration of every causal model type, which transformers itself accepts.

Sizes have a few dozen names across families; `SMALL` has a value for each, and a configuration takes those that it has.
Of layers there is one of each kind that the type's own default has. `SPECIAL` says what else a type wants, most of it
what transformers' own tests of the type say.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from transformers import CONFIG_MAPPING

VOCAB, CONTEXT = 199, 128
POSITIONS = 160
"""More than CONTEXT: some types keep a few for padding."""

SMALL: Mapping[str, Any] = {
    # widths
    "hidden_size": 64,
    "n_embd": 64,
    "d_model": 64,
    "embedding_size": 64,
    "word_embed_proj_dim": 64,
    "intermediate_size": 96,
    "n_inner": 96,
    "ffn_dim": 96,
    "ffn_hidden_size": 96,
    "decoder_ffn_dim": 96,
    "encoder_ffn_dim": 96,
    "vocab_size": VOCAB,
    # layers
    "num_hidden_layers": 2,
    "n_layer": 2,
    "n_layers": 2,
    "num_layers": 2,
    "decoder_layers": 2,
    "encoder_layers": 1,
    # heads
    "num_attention_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rotary_dim": 8,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 12,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    # positions
    "max_position_embeddings": POSITIONS,
    "n_positions": POSITIONS,
    "n_ctx": POSITIONS,
    "max_seq_len": POSITIONS,
    "sliding_window": 16,
    # experts
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_topk": 2,
    "moe_intermediate_size": 32,
    "expert_ffn_hidden_size": 32,
    "shared_expert_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 32,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "zero_expert_num": 0,
    # states
    "mamba_n_heads": 4,
    "mamba_num_heads": 4,
    "mamba_d_head": 32,
    "mamba_head_dim": 32,
    "mamba_d_state": 8,
    "ssm_state_size": 8,
    "state_size": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    # tokens
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "is_decoder": True,
}
WHERE_GIVEN = ("sliding_window", "q_lora_rank")
"""Sizes that a type may have by default or not: None stays None."""
KINDS = ("layer_types", "layers_block_type", "block_types")
"""Fields that name the kind of each layer."""

PARTS = ("text_config", "decoder", "vision_config", "audio_config")
"""Fields that are the configuration of a part: what is given of it changes the small one."""

LATENT = {"head_dim": 8, "num_key_value_heads": 4}
LATENT_TYPES = (
    "axk1",
    "axk2",
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "glm4_moe_lite",
    "glm_moe_dsa",
    "longcat_flash",
    "minicpm3",
    "youtu",
)
SPECIAL: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(LATENT_TYPES, LATENT),
    "cohere_compass_text": {
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]},
            "full_attention": None,
        },
    },
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0},
        "ffn_config": {"hidden_size": 64, "ffn_hidden_size": 96, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "dots1": {"n_shared_experts": 1},
    "dots3_note": {
        "text_config": {"num_key_value_heads": 4},
        "vision_config": {
            "num_hidden_layers": 1,
            "num_local_experts": 2,
            "num_experts_per_tok": 1,
            "mlp_layer_types": ["dense"],
            "adapter_in_dim": 64,
            "adapter_out_dim": 64,
        },
        "audio_config": {"adapter_input_size": 64, "adapter_out_dim": 64},
    },
    "dots3_note_text": {"num_key_value_heads": 4},
    "gemma3n_text": {
        "num_kv_shared_layers": 0,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": VOCAB,
        "laurel_rank": 8,
        "altup_num_inputs": 2,
        "activation_sparsity_pattern": None,
    },
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 16, "num_heads": 4},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 1},
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
    "zaya": {"num_experts_per_tok": 1},
}


def tiny(model_type: str, **changes: Any) -> Any:
    """The configuration, with `changes`. Whatever its own validation raises."""
    kind = CONFIG_MAPPING[model_type]
    default = kind().to_dict()
    given = dict(_shrunk(default))
    for name in PARTS:
        if isinstance(default.get(name), dict):
            given[name] = dict(_shrunk(default[name]))
    for name, value in (SPECIAL.get(model_type, {}) | changes).items():
        given[name] = {**given.get(name, {}), **value} if name in PARTS else value
    return kind(**given)


def _shrunk(default: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What a part with these defaults takes of SMALL."""
    yield from (
        (name, value)
        for name, value in SMALL.items()
        if name in default and not (name in WHERE_GIVEN and default[name] is None)
    )
    fields = [name for name in KINDS if isinstance(default.get(name), list) and default[name]]
    if fields:
        kinds = list(dict.fromkeys(default[fields[0]]))
        kinds = kinds if len(kinds) > 1 else kinds * 2
        yield from ((name, kinds) for name in fields)
        yield from (
            (name, len(kinds)) for name in ("num_hidden_layers", "num_layers", "n_layer", "n_layers") if name in default
        )
        if default.get("mlp_layer_types"):
            yield (
                "mlp_layer_types",
                [default["mlp_layer_types"][0], *[default["mlp_layer_types"][-1]] * (len(kinds) - 1)],
            )
